import { useState } from "react";
import { message } from "../live/api";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Problem } from "../ui/Problem";

interface Output {
  live: boolean;
  lines?: string[] | null;
  truncated?: boolean;
}

/** The end of what the agent wrote to standard error: a warning first, and nothing is fetched before it is taken. */
export function RecentOutput({ id, onClose }: { id: string; onClose: () => void }) {
  const { live } = usePage();
  const [output, setOutput] = useState<Output | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const fetchIt = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      setOutput((await live.request("session.mcp_recent_agent_output", { session_id: id })) as Output);
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  if (!output) {
    return (
      <section className="stack tight" aria-label="Recent agent output">
        <p className="note amber">
          What an agent writes there is not checked: it may hold keys, paths or parts of the conversation. It is shown here only, never kept, and not in copied diagnostics.
        </p>
        <Problem text={error} />
        <div className="buttons">
          <Button busy={busy} onClick={() => void fetchIt()}>
            Show it
          </Button>
          <Button kind="quiet" onClick={onClose}>
            Do not
          </Button>
        </div>
      </section>
    );
  }
  const lines = output.lines ?? [];
  return (
    <section className="stack tight" aria-label="Recent agent output">
      <p className="small">
        {output.live ? "The newest lines at the moment of your click. They do not go on by themselves." : "Not live: the agent does not run. These are its last lines, if any are left."}
        {output.truncated ? " Older lines are left out." : ""}
      </p>
      {lines.length === 0 ? (
        <p className="note">The agent has written nothing there.</p>
      ) : (
        <pre className="block" tabIndex={0} role="region" aria-label="Recent agent output, as it was written">
          {lines.join("\n")}
        </pre>
      )}
      <div className="buttons">
        <Button busy={busy} onClick={() => void fetchIt()}>
          Fetch it again
        </Button>
        <Button kind="quiet" onClick={onClose}>
          Hide it
        </Button>
      </div>
    </section>
  );
}
