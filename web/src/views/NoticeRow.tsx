import { memo, useState } from "react";
import { ApiError, message, path } from "../live/api";
import { noticeWords, pending } from "../live/inbox";
import type { Notice } from "../live/wire";
import { usePage } from "../page";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Button } from "../ui/Button";
import { Problem } from "../ui/Problem";
import { Time } from "../ui/Time";
import { oneLine } from "./EntryRow";

const tones = { waits: "amber", done: "green", lost: "red" } as const;

/** One notice; open, with its text and all its steps. */
export const NoticeRow = memo(function NoticeRow({ notice: listed }: { notice: Notice }) {
  const { api } = usePage();
  const [open, setOpen] = useState(false);
  const [full, setFull] = useState<Notice | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  // What was read is of its moment: with another state the list knows better.
  const n = full?.state === listed.state ? full : listed;
  const stateWords = noticeWords(n.state);
  const steps = n.steps;
  const load = async (): Promise<void> => {
    try {
      setFull(await api.ask<Notice>("GET", path("inbox", listed.id)));
    } catch (e) {
      setError(words(e));
    }
  };
  const ack = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await api.ask("POST", path("inbox", n.id, "ack"), {});
      await load();
    } catch (e) {
      setError(words(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <details
      className="item"
      open={open}
      onToggle={(e) => {
        setOpen(e.currentTarget.open);
        if (e.currentTarget.open && full?.state !== listed.state) void load();
      }}
    >
      <summary>
        <span className="grow">
          <span className="row spread">
            <strong className="cut">{n.title || n.source}</strong>
            <Badge tone={tones[stateWords.tone]}>{stateWords.label}</Badge>
          </span>
          <span className="row spread tiny muted">
            <span className="cut">
              for {n.agent} · {n.source} · {oneLine(n.text)}
            </span>
            <Time at={n.created_at} />
          </span>
        </span>
      </summary>
      {open && (
        <div className="stack inner-notice">
          <pre className="block" tabIndex={0} role="region" aria-label="What the notice says">
            {n.text}
          </pre>
          <p className="small">{stateWords.words}</p>
          <dl className="facts">
            <dt>For</dt>
            <dd>
              <a href={href("sessions", n.agent)}>{n.agent}</a>
            </dd>
            {Object.entries(n.meta ?? {}).map(([k, v]) => (
              <Fact key={k} name={k} value={v} />
            ))}
            <dt>Offered</dt>
            <dd>
              {n.offers} {n.offers === 1 ? "time" : "times"}
              {n.due && pending(n) ? (
                <>
                  , next <Time at={n.due} />
                </>
              ) : null}
            </dd>
            {n.depth ? <Fact name="Turns that led to it" value={String(n.depth)} /> : null}
            <dt>Id</dt>
            <dd className="mono tiny">{n.id}</dd>
          </dl>
          {steps && steps.length > 0 && (
            <ol className="steps" aria-label="Steps of its delivery">
              {steps.map((s, i) => (
                <li key={i} className="wrap">
                  <strong>{noticeWords(s.state).label}</strong> <Time at={s.at} both />
                  {s.adapter ? <span className="muted"> · by {s.adapter}</span> : null}
                  {s.reason ? <span className="muted"> · {s.reason}</span> : null}
                </li>
              ))}
            </ol>
          )}
          <Problem text={error} />
          {n.state !== "acked" && n.state !== "suppressed" && (
            <div>
              <Button busy={busy} onClick={() => void ack()}>
                Acknowledge
              </Button>
            </div>
          )}
        </div>
      )}
    </details>
  );
});

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}

function words(e: unknown): string {
  return e instanceof ApiError && e.status === 404 ? "The daemon does not keep this notice any more: its agent was removed, or it was kept for long enough." : message(e);
}
