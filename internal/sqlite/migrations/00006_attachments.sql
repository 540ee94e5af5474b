-- +goose Up

-- Attachment reports, one for each session, as JSON. Sessions may have one before
-- they are saved, so nothing refers to them.
CREATE TABLE attachment_report (
    session TEXT PRIMARY KEY,
    report  TEXT NOT NULL
) WITHOUT ROWID;
