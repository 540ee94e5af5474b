import { useState } from "react";
import { ended, sandboxesRoom } from "../live/sandboxes";
import { usePage, useTopic } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { PhaseNote } from "../ui/PhaseNote";
import { StartSandbox } from "./StartSandbox";
import { WorkerRow } from "./WorkerRow";

/** Sandboxed workers. */
export function WorkersView() {
  const { info } = usePage();
  const view = useTopic("sandboxes", sandboxesRoom);
  const [starting, setStarting] = useState(false);
  const none = view.phase === "failed" && view.code === "unavailable";
  const may = view.phase !== "failed" && (info?.sandbox_profiles ?? []).length > 0;
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Workers</h1>
        {view.phase !== "failed" && view.phase !== "loading" && <span className="tiny muted">{view.state.filter((s) => !ended(s)).length} alive</span>}
        {may && (
          <Button icon="plus" onClick={() => setStarting(true)}>
            Start a sandbox
          </Button>
        )}
      </div>
      {none ? (
        <Empty title="No gateway for sandboxes">
          <p>
            This daemon starts no sandboxes. <code>ossicle serve --worker-gateway</code> does, and shows its workers here.
          </p>
        </Empty>
      ) : (
        <div className="body" tabIndex={0} role="region" aria-label="Sandboxes">
          <div className="page">
            <PhaseNote view={view} topic="sandboxes" what="the sandboxes" />
            {view.phase === "live" && view.state.length === 0 && (
              <Empty title="No sandboxes">
                <p>A sandbox runs an agent's tools apart from this machine's files and network. Profiles with a sandbox start theirs; one can be started by hand, too.</p>
                {may && (
                  <Button kind="primary" icon="plus" onClick={() => setStarting(true)}>
                    Start the first one
                  </Button>
                )}
              </Empty>
            )}
            {view.state.length > 0 && (
              <div className="card list">
                {view.state.map((s) => (
                  <WorkerRow key={s.id} sandbox={s} />
                ))}
              </div>
            )}
          </div>
        </div>
      )}
      {starting && <StartSandbox onClose={() => setStarting(false)} />}
    </div>
  );
}
