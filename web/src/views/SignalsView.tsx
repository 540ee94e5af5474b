import { useEffect, useState } from "react";
import { message } from "../live/api";
import { signalsRoom } from "../live/signals";
import { usePage, useStatus, useTopic } from "../page";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { Icon } from "../ui/Icon";
import { PhaseNote } from "../ui/PhaseNote";
import { Time } from "../ui/Time";
import { SignalRows } from "./SignalRows";

interface Listed {
  id: string;
  agents: number;
}

/** Collaboration sessions: who is in them, and what they say to each other. */
export function SignalsView({ id }: { id: string }) {
  const { api, info } = usePage();
  const status = useStatus();
  const offered = info?.features?.signals;
  const [all, setAll] = useState<readonly Listed[] | null>(null);
  const [error, setError] = useState("");
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (status !== "live" || !offered) return;
    api.ask<{ collaborations?: Listed[] | null }>("GET", "/v1/collaborations").then(
      (r) => {
        setAll(r.collaborations ?? []);
        setError("");
      },
      (e: unknown) => setError(message(e)),
    );
  }, [api, status, id, offered, tries]);
  return (
    <div className={`panes ${id ? "chosen" : ""}`}>
      <section className="first" aria-label="Collaborations">
        <div className="view">
          <div className="head">
            <h1>Signals</h1>
          </div>
          <div className="scroll-list" tabIndex={0} role="region" aria-label="List of collaborations">
            {error && (
              <div className="note red row flow" role="alert">
                <span className="grow">The collaborations could not be listed: {error}</span>
                <Button onClick={() => setTries((n) => n + 1)}>Try again</Button>
              </div>
            )}
            {offered === false && <p className="note">Your token gives no right to see what agents write to each other. The arrow at the top forgets it, to ask for another one.</p>}
            {all === null && !error && offered !== false && (
              <p className={`note row ${status === "live" ? "" : "amber"}`} role="status">
                <span className="spinner" aria-hidden="true" /> {status === "live" ? "Loading the collaborations…" : "The daemon is away. Once it is back, the collaborations will be here."}
              </p>
            )}
            {all?.length === 0 && (
              <Empty title="No collaboration yet">
                <p>
                  <code>ossicle start-session</code> begins one; agents that are started with its id (<code>--signals</code>) find each other here.
                </p>
              </Empty>
            )}
            <ul className="sessionlist">
              {all?.map((c) => (
                <li key={c.id}>
                  <a href={href("signals", c.id)} aria-current={c.id === id ? "true" : undefined}>
                    <span className="name cut">{c.id}</span>
                    <span className="tiny muted">
                      {c.agents} {c.agents === 1 ? "agent" : "agents"}
                    </span>
                  </a>
                </li>
              ))}
            </ul>
          </div>
        </div>
      </section>
      <section className="second" aria-label="Collaboration">
        {id ? (
          <Collaboration key={id} id={id} />
        ) : (
          <Empty title={all?.length ? "Choose a collaboration" : "Nobody talks yet"}>
            <p>Signals are short messages between agents: who sent them, to whom, and who has read them.</p>
          </Empty>
        )}
      </section>
    </div>
  );
}

const tones: Record<string, "green" | "amber" | "grey"> = { active: "green", idle: "green", sleeping: "grey", stale: "amber" };
const words: Record<string, string> = { active: "Active", idle: "Idle", sleeping: "Has left", stale: "Not heard of" };

function Collaboration({ id }: { id: string }) {
  const topic = "signals:" + id;
  const view = useTopic(topic, signalsRoom);
  const { agents, signals, whiteboard } = view.state;
  return (
    <div className="view">
      <div className="head">
        <a className="button icon quiet back" href={href("signals")} aria-label="All collaborations" title="All collaborations">
          <Icon name="back" size={18} />
        </a>
        <h1 className="cut grow">{id}</h1>
      </div>
      <div className="body" tabIndex={0} role="region" aria-label={`Collaboration ${id}`}>
        <div className="page">
          <PhaseNote view={view} topic={topic} what="this collaboration" />
          {agents.length > 0 && (
            <section className="card" aria-label="Agents">
              <table className="grid">
                <thead>
                  <tr>
                    <th scope="col">Agent</th>
                    <th scope="col">State</th>
                    <th scope="col">Last heard of</th>
                  </tr>
                </thead>
                <tbody>
                  {agents.map((a) => (
                    <tr key={a.id}>
                      <td>
                        <strong>{a.id}</strong>
                        <div className="tiny muted">{[a.harness, a.substrate].filter(Boolean).join(" · ")}</div>
                      </td>
                      <td>
                        <Badge tone={tones[a.status] ?? "grey"}>{words[a.status] ?? a.status}</Badge>
                      </td>
                      <td>
                        <Time at={a.last_seen} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
          {whiteboard.length > 0 && (
            <section className="card list" aria-label="Whiteboard">
              <h2 className="title">Whiteboard</h2>
              {whiteboard.map((e) => (
                <div className="item" key={e.key}>
                  <div className="row spread tiny muted">
                    <span className="mono wrap">{e.key}</span>
                    <span>
                      {e.updated_by} · <Time at={e.updated_at} />
                    </span>
                  </div>
                  <p className="small wrap text-pre">{e.value}</p>
                </div>
              ))}
            </section>
          )}
          {view.phase === "live" && signals.length === 0 && (
            <Empty title="No signals yet">
              <p>
                Its agents send them with their tools. A person can, too: <code>ossicle signal AGENT TEXT --session {id} --agent ME</code>.
              </p>
            </Empty>
          )}
          {signals.length > 0 && <SignalRows signals={signals} />}
        </div>
      </div>
    </div>
  );
}
