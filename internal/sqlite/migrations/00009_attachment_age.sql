-- +goose Up

-- Reports are kept in the order in which they were last written: the oldest of too
-- many go. Those of before all count as older than any.
ALTER TABLE attachment_report ADD COLUMN touched INTEGER NOT NULL DEFAULT 0;
CREATE INDEX attachment_report_touched ON attachment_report (touched);
