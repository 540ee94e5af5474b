import type { ReactNode } from "react";
import { useMemo, useState } from "react";
import { path } from "../live/api";
import type { Sandbox } from "../live/sandboxes";
import { causeWords, ended, sandboxWords } from "../live/sandboxes";
import { duration, size } from "../live/time";
import { usePage } from "../page";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Block } from "../ui/Block";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Elapsed, Time } from "../ui/Time";

/** One sandbox: how it is, what its clocks say, and why it ended. */
export function WorkerRow({ sandbox: s }: { sandbox: Sandbox }) {
  const { api } = usePage();
  const [asking, setAsking] = useState<"release" | "kill" | null>(null);
  // The age is that of the moment at which the row was told.
  const heard = useMemo(() => (s.heartbeat_age_seconds === undefined ? undefined : new Date(Date.now() - s.heartbeat_age_seconds * 1000).toISOString()), [s]);
  const words = sandboxWords(s);
  const why = causeWords(s);
  return (
    <div className="item stack tight">
      <div className="row spread flow">
        <h2 className="wrap">{s.id}</h2>
        <Badge tone={words.tone}>{words.label}</Badge>
      </div>
      <dl className="facts aligned">
        <Fact name="Profile">{[s.profile, s.driver, s.tier].filter(Boolean).join(" · ")}</Fact>
        {s.agent && (
          <Fact name="For">
            <a href={href("sessions", s.agent)}>{s.agent}</a>
          </Fact>
        )}
        <Fact name="Begun">
          <Time at={s.created} both />
        </Fact>
        {!ended(s) && (
          <>
            {/* Before the first one nothing is known of its clocks. */}
            {heard && <Clock name="Idle" seconds={s.idle_seconds} budget={s.idle_budget_seconds} />}
            {heard && s.exec_seconds !== undefined && (
              <Fact name="Worker up">
                <Elapsed since={new Date(Date.parse(heard) - s.exec_seconds * 1000).toISOString()} />
                {s.exec_budget_seconds ? <span className="muted"> of {duration(s.exec_budget_seconds * 1000)}</span> : null}
              </Fact>
            )}
            {heard && (
              <Fact name="Last sign of life">
                <Time at={heard} />
              </Fact>
            )}
            {!!s.active_calls && <Fact name="Calls under way">{s.active_calls}</Fact>}
            {!!s.workspace_bytes && <Fact name="Files">{size(s.workspace_bytes)}</Fact>}
            {s.here === false && <Fact name="Held by">{s.owner ?? "another process"}</Fact>}
          </>
        )}
        {why && <Fact name="Why">{why}</Fact>}
        {ended(s) && <Fact name="Outputs">{s.outputs?.length ? `${s.outputs.length} kept` : s.outputs_flushed ? "none" : "not handed over"}</Fact>}
      </dl>
      <details className="small">
        <summary>All that is known</summary>
        <Block label={`Sandbox ${s.id}`} value={s} />
      </details>
      {!ended(s) && (
        <div className="buttons">
          {s.state !== "releasing" && <Button onClick={() => setAsking("release")}>Release…</Button>}
          <Button kind="danger" onClick={() => setAsking("kill")}>
            Kill…
          </Button>
        </div>
      )}
      <Confirm
        open={asking !== null}
        onClose={() => setAsking(null)}
        title={asking === "kill" ? "Kill this sandbox?" : "Release this sandbox?"}
        text={asking === "kill" ? `“${s.id}” ends at once. What its worker has not handed over is lost.` : `The worker of “${s.id}” hands over its outputs and ends.`}
        verb={asking === "kill" ? "Kill it" : "Release it"}
        danger={asking === "kill"}
        act={() => api.ask("POST", path("sandboxes", s.id, asking ?? "release"), {})}
      />
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Clock({ name, seconds, budget }: { name: string; seconds: number | undefined; budget: number | undefined }) {
  if (seconds === undefined) return null;
  return (
    <Fact name={name}>
      {duration(seconds * 1000)}
      {budget ? <span className="muted"> of {duration(budget * 1000)}</span> : null}
    </Fact>
  );
}
