import type { DryRun } from "../live/wire";
import { Block } from "../ui/Block";

/** What a filter makes of sample events. */
export function DryRunResult({ result }: { result: DryRun }) {
  const lines = result.lines ?? [];
  const failed = lines.filter((l) => l.error).length;
  return (
    <section className="stack tight" aria-label="What the filter would say">
      <p className={`note ${!result.ok ? "red" : failed ? "amber" : "green"}`} role="status">
        {!result.ok
          ? `The filter cannot be started: ${result.problem ?? "it fails"}`
          : failed
            ? `The filter starts, and fails on ${failed === lines.length ? "every event" : `${failed} of ${lines.length} events`} that it was tried on, samples and the resource as it is now:`
            : "The filter runs. This is what it says of samples, and of the resource as it is now where it could be read:"}
      </p>
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
