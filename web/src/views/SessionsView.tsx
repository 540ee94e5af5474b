import { useState } from "react";
import { sessionsRoom } from "../live/sessions";
import { usePage, useTopic } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { PhaseNote } from "../ui/PhaseNote";
import { Chat } from "./Chat";
import { NewSession } from "./NewSession";
import { SessionList } from "./SessionList";

export function SessionsView({ id }: { id: string }) {
  const { info } = usePage();
  const view = useTopic("sessions", sessionsRoom);
  // To start one is to run a command there: that takes the right to all.
  const may = info?.principal?.all !== false;
  const [making, setMaking] = useState(false);
  return (
    <div className={`panes ${id ? "chosen" : ""}`}>
      <section className="first" aria-label="Sessions">
        <div className="view">
          <div className="head">
            <h1 className="grow">Sessions</h1>
            {may && (
              <Button icon="plus" onClick={() => setMaking(true)}>
                New
              </Button>
            )}
          </div>
          <div className="scroll-list" tabIndex={0} role="region" aria-label="List of sessions">
            <PhaseNote view={view} topic="sessions" what="the sessions" />
            {view.state.length > 0 && <SessionList sessions={view.state} chosen={id} />}
            {view.phase === "live" && view.state.length === 0 && (
              <Empty title="No sessions yet">
                <p>A session is one agent with its conversation, its MCP servers and its watches.</p>
                {may && (
                  <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
                    Start the first one
                  </Button>
                )}
              </Empty>
            )}
          </div>
        </div>
      </section>
      <section className="second" aria-label="Session">
        {id ? (
          <Chat key={id} id={id} />
        ) : (
          <Empty title={view.state.length ? "Choose a session" : "Nothing is running"}>
            <p>What an agent says, does and hears is shown here, as it happens.</p>
          </Empty>
        )}
      </section>
      {making && <NewSession onClose={() => setMaking(false)} taken={view.state.map((s) => s.meta.id)} />}
    </div>
  );
}
