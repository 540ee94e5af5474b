import type { View } from "../live/room";
import { usePage, useStatus } from "../page";
import { Button } from "./Button";

/** Says that a topic is being loaded, or why it is not there. Nothing while it is live. */
export function PhaseNote({ view, topic, what }: { view: View<unknown>; topic: string; what: string }) {
  const { live } = usePage();
  const status = useStatus();
  if (view.phase === "loading") {
    const away = status === "reconnecting";
    return (
      <p className={`note row ${away ? "amber" : ""}`} role="status">
        <span className="spinner" aria-hidden="true" /> {away ? `The daemon is away. Once it is back, ${what} will be here.` : `Loading ${what}…`}
      </p>
    );
  }
  if (view.phase === "failed") {
    return (
      <div className="note red row flow" role="alert">
        <span className="grow">{reason(view.code, view.error, what)}</span>
        {view.code !== "forbidden" && <Button onClick={() => live.retry(topic)}>Try again</Button>}
      </div>
    );
  }
  if (view.phase === "stale") {
    return (
      <p className="note amber stale" role="status">
        Not live: what you see is from before the connection was lost. It goes on by itself once the daemon is back.
      </p>
    );
  }
  return null;
}

function reason(code: string, error: string, what: string): string {
  switch (code) {
    case "forbidden":
      return `Your token gives no right to ${what}. The arrow at the top forgets it, to ask for another one.`;
    case "not_found":
      return `There is no such thing: ${what}.`;
    case "unavailable":
      return error || `The daemon does not offer ${what} now.`;
  }
  return error || `Loading ${what} failed.`;
}
