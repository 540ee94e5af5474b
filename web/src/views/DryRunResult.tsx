import { useEffect, useRef } from "react";
import type { DryRun } from "../live/wire";
import { Block } from "../ui/Block";

/** What came of trying a filter, or of starting its watch. */
export type Outcome = { result: DryRun } | { error: string } | null;

/**
 * What a filter makes of sample events, or why nothing came of it: in one place, which
 * is there before it says anything, so that screen readers tell of it, and which comes
 * into sight.
 */
export function DryRunResult({ outcome, busy = "" }: { outcome: Outcome; busy?: string }) {
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    if (outcome || busy) place.current?.scrollIntoView({ block: "start" });
  }, [outcome, busy]);
  const lines = outcome && "result" in outcome ? (outcome.result.lines ?? []) : [];
  const said = words(outcome);
  return (
    <section className={outcome || busy ? "stack tight" : "unseen"} aria-label="What the filter would say" ref={place}>
      <div role="status">
        {busy && (
          <p className="note row">
            <span className="spinner" aria-hidden="true" /> {busy}
          </p>
        )}
        {said && !busy && <p className={`note ${said.tone}`}>{said.text}</p>}
      </div>
      {lines.map((l, i) => (
        <details key={i} className="small">
          <summary>
            <span className="tiny muted">{l.now ? "now" : "sample"}</span>
            {l.error ? <span className="red-text wrap">Error: {l.error}</span> : l.line === null ? <span className="muted">nothing is told</span> : <span className="mono wrap">{l.line}</span>}
          </summary>
          <div className="inner">
            <Block label="The event" value={l.event} />
          </div>
        </details>
      ))}
    </section>
  );
}

function words(outcome: Outcome): { tone: string; text: string } | null {
  if (!outcome) return null;
  if ("error" in outcome) return { tone: "red", text: outcome.error };
  const { result } = outcome;
  const lines = result.lines ?? [];
  const failed = lines.filter((l) => l.error).length;
  if (!result.ok) return { tone: "red", text: `The filter cannot be started: ${result.problem ?? "it fails"}` };
  if (failed) return { tone: "amber", text: `The filter starts, and fails on ${failed === lines.length ? "every event" : `${failed} of ${lines.length} events`} that it was tried on, samples and the resource as it is now:` };
  return { tone: "green", text: "The filter runs. This is what it says of samples, and of the resource as it is now where it could be read:" };
}
