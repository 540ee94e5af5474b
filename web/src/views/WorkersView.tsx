import { useState } from "react";
import { path } from "../live/api";
import type { Sandbox } from "../live/sandboxes";
import { sandboxesRoom } from "../live/sandboxes";
import { duration } from "../live/time";
import { usePage, useTopic } from "../page";
import { Badge } from "../ui/Badge";
import { Block } from "../ui/Block";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Empty } from "../ui/Empty";
import { PhaseNote } from "../ui/PhaseNote";
import { Time } from "../ui/Time";

/** Sandboxed workers: how they are, what their clocks say, and why they ended. */
export function WorkersView() {
  const view = useTopic("sandboxes", sandboxesRoom);
  if (view.phase === "failed" && view.code === "unavailable") {
    return (
      <div className="view">
        <div className="head">
          <h1>Workers</h1>
        </div>
        <Empty title="No gateway for sandboxes">
          <p>This daemon starts no sandboxes. Where a gateway is configured, its workers are shown here.</p>
        </Empty>
      </div>
    );
  }
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Workers</h1>
        <span className="tiny muted">{view.state.filter((s) => !ended(s)).length} alive</span>
      </div>
      <div className="body" tabIndex={0} role="region" aria-label="Sandboxes">
        <div className="page">
          <PhaseNote view={view} topic="sandboxes" what="the sandboxes" />
          {view.phase === "live" && view.state.length === 0 && (
            <Empty title="No sandboxes">
              <p>A sandbox runs an agent's tools apart from this machine's files and network.</p>
            </Empty>
          )}
          {view.state.length > 0 && (
            <div className="card list">
              {view.state.map((s) => (
                <Worker key={s.id} sandbox={s} />
              ))}
            </div>
          )}
        </div>
      </div>
    </div>
  );
}

const words: Record<string, { label: string; tone: "green" | "amber" | "red" | "grey" | "blue" }> = {
  pending: { label: "Waits for its worker", tone: "amber" },
  created: { label: "Waits for its worker", tone: "amber" },
  starting: { label: "Starting", tone: "amber" },
  connected: { label: "Connected", tone: "green" },
  active: { label: "Connected", tone: "green" },
  ready: { label: "Ready", tone: "green" },
  busy: { label: "Working", tone: "blue" },
  disconnected: { label: "Connection lost", tone: "amber" },
  detached: { label: "Connection lost", tone: "amber" },
  draining: { label: "Ending", tone: "amber" },
  releasing: { label: "Ending", tone: "amber" },
  released: { label: "Released", tone: "grey" },
  closed: { label: "Ended", tone: "grey" },
  ended: { label: "Ended", tone: "grey" },
  killed: { label: "Killed", tone: "red" },
  failed: { label: "Failed", tone: "red" },
  lost: { label: "Lost", tone: "red" },
};

function ended(s: Sandbox): boolean {
  return !!s.ended_at || ["released", "closed", "ended", "killed", "failed", "lost"].includes(s.state);
}

function Worker({ sandbox: s }: { sandbox: Sandbox }) {
  const { api } = usePage();
  const [asking, setAsking] = useState<"release" | "kill" | null>(null);
  const w = words[s.state] ?? { label: s.state, tone: "grey" as const };
  const { id, state: _state, profile, reason, created_at, ended_at, idle_seconds, exec_seconds, ...rest } = s;
  return (
    <div className="item stack tight">
      <div className="row spread flow">
        <strong className="wrap">{id}</strong>
        <Badge tone={w.tone}>{w.label}</Badge>
      </div>
      <dl className="facts">
        {profile && (
          <>
            <dt>Profile</dt>
            <dd>{String(profile)}</dd>
          </>
        )}
        {created_at && (
          <>
            <dt>Begun</dt>
            <dd>
              <Time at={created_at} both />
            </dd>
          </>
        )}
        {ended_at && (
          <>
            <dt>Ended</dt>
            <dd>
              <Time at={ended_at} both />
            </dd>
          </>
        )}
        {idle_seconds !== undefined && (
          <>
            <dt>Idle for</dt>
            <dd>{duration(idle_seconds * 1000)}</dd>
          </>
        )}
        {exec_seconds !== undefined && (
          <>
            <dt>Has worked for</dt>
            <dd>{duration(exec_seconds * 1000)}</dd>
          </>
        )}
        {reason && (
          <>
            <dt>Why</dt>
            <dd>{String(reason)}</dd>
          </>
        )}
      </dl>
      {Object.keys(rest).length > 0 && (
        <details className="small">
          <summary>All that is known</summary>
          <Block label={`Sandbox ${id}`} value={rest} />
        </details>
      )}
      {!ended(s) && (
        <div className="buttons">
          <Button onClick={() => setAsking("release")}>Release…</Button>
          <Button kind="danger" onClick={() => setAsking("kill")}>
            Kill…
          </Button>
        </div>
      )}
      <Confirm
        open={asking !== null}
        onClose={() => setAsking(null)}
        title={asking === "kill" ? "Kill this sandbox?" : "Release this sandbox?"}
        text={asking === "kill" ? `“${id}” ends at once. What its worker has not handed over is lost.` : `The worker of “${id}” hands over its outputs and ends.`}
        verb={asking === "kill" ? "Kill it" : "Release it"}
        danger={asking === "kill"}
        act={() => api.ask("POST", path("sandboxes", id, asking ?? "release"), {})}
      />
    </div>
  );
}
