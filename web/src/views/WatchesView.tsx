import type { ReactNode } from "react";
import { useMemo, useState } from "react";
import { sessionRoom } from "../live/session";
import { sessionsRoom } from "../live/sessions";
import type { WatchStatus } from "../live/wire";
import { count } from "../live/report";
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

// Each session that is shown with its watches is a subscription, of which a connection
// has 64.
const mostCards = 40;
const mostNames = 200;

/** The watches of every session that runs: those that have some, and in one line the rest. */
export function WatchesView() {
  const view = useTopic("sessions", sessionsRoom);
  const [starting, setStarting] = useState("");
  // By name: the list must not move under the hand whenever a session is active.
  const running = useMemo(() => view.state.filter((s) => s.running).sort((a, b) => (a.meta.id < b.meta.id ? -1 : 1)), [view.state]);
  const watching = running.filter((s) => (s.watching ?? 0) > 0);
  const rest = running.filter((s) => !s.watching);
  const shown = watching.slice(0, mostCards);
  const more = watching.slice(mostCards);
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Watches</h1>
        <Button icon="plus" disabled={running.length === 0} onClick={() => setStarting(rest[0]?.meta.id ?? running[0]?.meta.id ?? "")}>
          Start a watch
        </Button>
      </div>
      <div className="body" tabIndex={0} role="region" aria-label="Watches by session">
        <div className="page">
          <PhaseNote view={view} topic="sessions" what="the sessions" />
          {view.phase === "live" && watching.length === 0 && (
            <Empty title={running.length === 0 ? "No session runs" : "Nothing is watched"}>
              <p>A watch belongs to a session: it tells that session's agent when a resource of one of its MCP servers changes.</p>
              {running.length === 0 ? (
                <a className="button" href={href("sessions")}>
                  Sessions
                </a>
              ) : (
                <Button kind="primary" icon="plus" onClick={() => setStarting(rest[0]?.meta.id ?? "")}>
                  Start the first one
                </Button>
              )}
            </Empty>
          )}
          {shown.map((s) => (
            <SessionWatches key={s.meta.id} id={s.meta.id} />
          ))}
          {more.length > 0 && (
            <Folded title={`${count(more.length, "more session")} with watches; each says them in its own list`}>
              {more.slice(0, mostNames).map((s) => (
                <li className="row spread" key={s.meta.id}>
                  <a className="wrap" href={href("sessions", s.meta.id)}>
                    {s.meta.id}
                  </a>
                  <span className="tiny muted">{s.watching === 1 ? "1 watch" : `${s.watching} watches`}</span>
                </li>
              ))}
            </Folded>
          )}
          {rest.length > 0 && (
            <Folded title={rest.length === 1 ? `Session ${rest[0]?.meta.id} watches nothing` : `${count(rest.length, "session")} watch nothing`}>
              {rest.slice(0, mostNames).map((s) => (
                <li className="row spread" key={s.meta.id}>
                  <a className="wrap" href={href("sessions", s.meta.id)}>
                    {s.meta.id}
                  </a>
                  <Button aria-label={`Start a watch in ${s.meta.id}`} onClick={() => setStarting(s.meta.id)}>
                    Start a watch
                  </Button>
                </li>
              ))}
              {rest.length > mostNames && <li className="tiny muted">{rest.length - mostNames} more; “Start a watch” above has them all.</li>}
            </Folded>
          )}
        </div>
      </div>
      {starting && <StartWatch session={starting} sessions={running.map((s) => s.meta.id)} onClose={() => setStarting("")} />}
    </div>
  );
}

function Folded({ title, children }: { title: string; children: ReactNode }) {
  return (
    <details className="card folded">
      <summary className="small muted">{title}</summary>
      <ul className="stack tight inner">{children}</ul>
    </details>
  );
}

function SessionWatches({ id }: { id: string }) {
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
      {watches.map((w) => (
        <div className="item row top" key={w.name}>
          <div className="grow">
            <div className="row flow">
              <strong className="wrap">{w.name}</strong>
              <WatchState watch={w} />
            </div>
            <p className="mono tiny wrap">{w.uri}</p>
            <p className="tiny muted">
              {[w.shape === "log" ? "a log: every event counts" : w.shape === "state" ? "a state: differences count" : w.shape, `${count(w.events, "event")} heard`, `${count(w.notices, "notice")} given`].filter(Boolean).join(" · ")}
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
