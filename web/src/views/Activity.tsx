import type { SessionState } from "../live/session";
import type { SessionInfo } from "../live/wire";
import { Elapsed } from "../ui/Time";

/** What is going on, in words, and for how long. */
export function Activity({ info, state, cancelling }: { info: SessionInfo | null; state: SessionState; cancelling: boolean }) {
  const what = words(info, state, cancelling);
  if (!what) {
    return <div className="activity">Enter sends, Shift+Enter begins a new line.</div>;
  }
  return (
    <div className="activity">
      <span className="spinner" aria-hidden="true" />
      <span className="cut" role="status">
        {what}
      </span>
      {state.since && <Elapsed since={state.since} />}
    </div>
  );
}

function words(info: SessionInfo | null, state: SessionState, cancelling: boolean): string {
  if (!info) return "";
  if (cancelling) return "Cancelling the turn…";
  if (state.asked.length > 0) return "The agent waits for your answer above";
  if (state.doing) return `Starting the agent: ${state.doing}`;
  switch (info.state) {
    case "starting":
      return "Starting the agent…";
    case "draining":
      return "Stopping…";
    case "busy":
      return "The agent works on its own account; your message waits until it is quiet";
    case "running": {
      const tool = state.now.tools.findLast((t) => t.status !== "completed" && t.status !== "failed");
      if (tool) return `Using ${tool.title || tool.id}`;
      if (state.now.text) return "The agent is speaking";
      if (state.now.thought) return "The agent is thinking";
      return "The agent is working";
    }
  }
  return "";
}
