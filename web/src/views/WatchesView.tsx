import { useState } from "react";
import { sessionRoom } from "../live/session";
import { sessionsRoom } from "../live/sessions";
import type { WatchStatus } from "../live/wire";
import { message, path } from "../live/api";
import { usePage, useTopic } from "../page";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Empty } from "../ui/Empty";
import { PhaseNote } from "../ui/PhaseNote";
import { Problem } from "../ui/Problem";
import { StartWatch } from "./StartWatch";

/** The watches of every session that runs. */
export function WatchesView() {
  const view = useTopic("sessions", sessionsRoom);
  const [starting, setStarting] = useState("");
  const running = view.state.filter((s) => s.running);
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Watches</h1>
        <Button icon="plus" disabled={running.length === 0} onClick={() => setStarting(running[0]?.meta.id ?? "")}>
          Start a watch
        </Button>
      </div>
      <div className="body" tabIndex={0} role="region" aria-label="Watches by session">
        <div className="page">
          <PhaseNote view={view} topic="sessions" what="the sessions" />
          {view.phase === "live" && running.length === 0 && (
            <Empty title="No session runs">
              <p>A watch belongs to a session: it tells that session's agent when a resource of one of its MCP servers changes.</p>
              <a className="button" href={href("sessions")}>
                Sessions
              </a>
            </Empty>
          )}
          {running.map((s) => (
            <SessionWatches key={s.meta.id} id={s.meta.id} onStart={() => setStarting(s.meta.id)} />
          ))}
        </div>
      </div>
      {starting && <StartWatch session={starting} sessions={running.map((s) => s.meta.id)} onClose={() => setStarting("")} />}
    </div>
  );
}

function SessionWatches({ id, onStart }: { id: string; onStart: () => void }) {
  const { api } = usePage();
  const topic = "session:" + id;
  const view = useTopic(topic, sessionRoom(id));
  const [stopping, setStopping] = useState<WatchStatus | null>(null);
  const [error, setError] = useState("");
  const watches = view.state.info?.watches ?? [];
  const stop = async (w: WatchStatus): Promise<void> => {
    setError("");
    try {
      await api.ask("DELETE", path("sessions", id, "watches", w.name));
    } catch (e) {
      setError(message(e));
      throw e;
    }
  };
  return (
    <section className="card list" aria-label={`Watches of ${id}`}>
      <div className="title row spread">
        <h2 className="cut">
          <a href={href("sessions", id)}>{id}</a>
        </h2>
        <span className="tiny muted">
          {watches.length} {watches.length === 1 ? "watch" : "watches"}
        </span>
      </div>
      {view.phase !== "live" && (
        <div className="item">
          <PhaseNote view={view} topic={topic} what={`the watches of ${id}`} />
        </div>
      )}
      <Problem text={error} />
      {view.phase === "live" && watches.length === 0 && (
        <div className="item row small muted">
          <span className="grow">Nothing is watched.</span>
          <Button onClick={onStart}>Start a watch</Button>
        </div>
      )}
      {watches.map((w) => (
        <div className="item row top" key={w.name}>
          <div className="grow">
            <div className="row flow">
              <strong className="wrap">{w.name}</strong>
              <WatchState watch={w} />
            </div>
            <p className="mono tiny wrap">{w.uri}</p>
            <p className="tiny muted">
              {[w.shape === "log" ? "a log: every event counts" : w.shape === "state" ? "a state: differences count" : w.shape, `${w.events.toLocaleString("en")} events heard`, `${w.notices.toLocaleString("en")} notices given`].filter(Boolean).join(" · ")}
            </p>
            {w.error && <p className="small red-text wrap">{w.error}</p>}
          </div>
          <Button icon="stop" onClick={() => setStopping(w)} aria-label={`Stop ${w.name}`}>
            Stop
          </Button>
        </div>
      ))}
      <Confirm
        open={stopping !== null}
        onClose={() => setStopping(null)}
        title={`Stop the watch “${stopping?.name ?? ""}”?`}
        text="The agent is told of no more changes of this resource. Notices that wait in the inbox stay."
        verb="Stop the watch"
        act={async () => {
          if (stopping) await stop(stopping);
        }}
      />
    </section>
  );
}

function WatchState({ watch: w }: { watch: WatchStatus }) {
  if (w.failed) return <Badge tone="red">Failed</Badge>;
  if (w.restore_failed) return <Badge tone="red">Not restored</Badge>;
  return <Badge tone="green">Watching</Badge>;
}
