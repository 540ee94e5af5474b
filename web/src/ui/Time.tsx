import { absolute, clock, duration, relative } from "../live/time";
import { useNow } from "./useNow";

/** A time in words, with the exact one beside it as a title. */
export function Time({ at, both = false }: { at: string | undefined; both?: boolean }) {
  // What happened since the last tick is not yet to come.
  const now = Math.max(useNow(15_000), Date.now());
  if (!at) return null;
  return (
    <time dateTime={at} title={absolute(at)}>
      {relative(at, now)}
      {both && <span className="muted"> · {absolute(at)}</span>}
    </time>
  );
}

/** A time of the day, with the date as a title. */
export function Clock({ at }: { at: string | undefined }) {
  if (!at) return null;
  return (
    <time dateTime={at} title={absolute(at)}>
      {clock(at)}
    </time>
  );
}

/** How long something lasts, while it does. */
export function Elapsed({ since }: { since: string }) {
  const now = useNow(1_000);
  const start = Date.parse(since);
  if (Number.isNaN(start)) return null;
  return <span>{duration(now - start)}</span>;
}
