import { useState } from "react";
import { diagnostics } from "../live/diagnostics";
import type { Attempt } from "../live/report";
import { compareTimes, currentAttempt, reasonText } from "../live/report";
import type { View } from "../live/room";
import type { SessionState } from "../live/session";
import { Button } from "../ui/Button";
import { CopyButton } from "../ui/CopyButton";
import { Time } from "../ui/Time";
import type { EndpointTests } from "./EndpointTest";
import { McpServerRow } from "./McpServerRow";
import { McpSettings } from "./McpSettings";
import { RecentOutput } from "./RecentOutput";

interface Props {
  id: string;
  view: View<SessionState>;
  tests: EndpointTests;
  onReset?: () => void;
  onLeave: () => void;
}

/** The attachment report in words. Nothing here is guessed from a configuration. */
export function McpPanel({ id, view, tests, onReset, onLeave }: Props) {
  const [settings, setSettings] = useState(false);
  const [output, setOutput] = useState(false);
  const report = view.state.report;
  const attempt = currentAttempt(report);
  return (
    <div className="plug">
      <div className="row spread">
        <h2>MCP servers</h2>
        {attempt && (
          <span className="tiny muted">
            as of <Time at={attempt.updated_at} />
          </span>
        )}
      </div>
      {attempt ? <Servers tests={tests} attempt={attempt} /> : <NoReport view={view} />}
      {output ? (
        <RecentOutput id={id} onClose={() => setOutput(false)} />
      ) : (
        <div className="buttons">
          {report && attempt && <CopyButton text={() => diagnostics(report)}>Copy sanitised diagnostics</CopyButton>}
          <Button onClick={() => setOutput(true)}>View recent agent output…</Button>
          <Button onClick={() => setSettings(true)}>Open MCP settings</Button>
          {onReset && attempt && (
            <Button
              kind="danger"
              onClick={() => {
                onLeave();
                onReset();
              }}
            >
              Reset context…
            </Button>
          )}
        </div>
      )}
      {attempt && <Ids attempt={attempt} />}
      <McpSettings open={settings} onClose={() => setSettings(false)} info={view.state.info} />
    </div>
  );
}

function Servers({ tests, attempt }: { tests: EndpointTests; attempt: Attempt }) {
  const servers = attempt.servers ?? [];
  const blocked = attempt.session_blocked_at && compareTimes(attempt.session_blocked_at, attempt.session_accepted_at) > 0;
  const over = !!attempt.session_error || !!attempt.agent_ended_at;
  return (
    <>
      {attempt.agent_ended_at && (
        <p className="note">
          The agent has ended <Time at={attempt.agent_ended_at} />. The rows tell how it was until then.
        </p>
      )}
      {blocked && (
        <p className="note amber">
          {over ? (
            <>
              The agent waited for a server, from <Time at={attempt.session_blocked_at} /> until the start was over.
            </>
          ) : (
            <>
              The agent has not answered since <Time at={attempt.session_blocked_at} />: it waits for a server.
            </>
          )}
        </p>
      )}
      {attempt.session_error && (
        <p className="note red wrap">
          Opening the session failed <Time at={attempt.session_error.occurred_at} />
          {attempt.session_error.reason_code ? `: ${reasonText(attempt.session_error.reason_code)}` : ""}
          {attempt.session_error.summary ? `. ${attempt.session_error.summary}` : ""}. The error names no server.
        </p>
      )}
      {servers.length === 0 ? (
        <p className="note">The agent was given no MCP servers.</p>
      ) : (
        <ul className="servers" aria-label="Servers">
          {servers.map((s) => (
            <McpServerRow key={s.name} tests={tests} server={s} />
          ))}
        </ul>
      )}
      {attempt.servers_truncated && <p className="tiny muted">There are more servers than a report holds; these are the first by name.</p>}
      <p className="tiny muted">
        <strong>Active</strong> means that the agent has listed the server's tools. Some agents hide tools behind a search: only <strong>Used</strong> proves that the model can call them. What was not seen is no failure.
      </p>
    </>
  );
}

function NoReport({ view }: { view: View<SessionState> }) {
  const text =
    view.phase === "loading"
      ? "Loading what is known…"
      : view.phase === "failed"
        ? "What is known could not be loaded."
        : "Nothing is known yet. A report begins when the agent is started and given its servers.";
  return (
    <p className="note" role="status">
      {text}
    </p>
  );
}

function Ids({ attempt: a }: { attempt: Attempt }) {
  return (
    <dl className="facts ids" aria-label="Identities of this attempt">
      <dt>Session</dt>
      <dd>
        <code>{a.session_id}</code>
      </dd>
      <dt>Execution</dt>
      <dd>
        <code>{a.execution_id}</code>
      </dd>
      <dt>Attempt</dt>
      <dd>
        <code>{a.attachment_attempt_id}</code>, begun <Time at={a.started_at} />
      </dd>
    </dl>
  );
}
