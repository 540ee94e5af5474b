import { useState } from "react";
import type { View } from "../live/room";
import type { SessionState } from "../live/session";
import { stateTones, stateWords } from "../live/sessions";
import type { SessionInfo } from "../live/wire";
import { path } from "../live/api";
import { usePage } from "../page";
import { go, href } from "../route";
import { Badge } from "../ui/Badge";
import { Confirm } from "../ui/Confirm";
import { Icon } from "../ui/Icon";
import { Time } from "../ui/Time";
import { McpPlug } from "./McpPlug";
import { SessionMenu } from "./SessionMenu";

type Asking = "reset" | "stop" | "remove" | null;

export function ChatToolbar({ id, info, view }: { id: string; info: SessionInfo | null; view: View<SessionState> }) {
  const { api } = usePage();
  const [asking, setAsking] = useState<Asking>(null);
  const state = info && stateWords({ ...info, asked: view.state.asked, questions: view.state.asked.length || info.questions });
  const watches = info?.watches?.length ?? 0;
  // Beside the name where there is room for it, below it where there is not.
  const badge = state && (
    <Badge tone={stateTones[state.tone]} plain={state.tone === "ended"}>
      {state.label}
    </Badge>
  );
  return (
    <>
      <header className="toolbar">
        <a className="button icon quiet back" href={href("sessions")} aria-label="All sessions" title="All sessions">
          <Icon name="back" size={18} />
        </a>
        <div className="grow">
          <h1 className="cut">{id}</h1>
          <div className="tiny muted cut">
            {[info?.meta.agent || info?.agent?.name, info?.meta.profile && `profile ${info.meta.profile}`].filter(Boolean).join(" · ") || " "}
          </div>
        </div>
        {badge}
        <McpPlug key={id} id={id} view={view} onReset={info?.running && info.state !== "draining" ? () => setAsking("reset") : undefined} />
        <SessionMenu id={id} info={info} onAsk={setAsking} />
      </header>
      {info && (
        <div className="facts-strip">
          {badge}
          {info.meta.dir && <span className="wrap mono tiny dir">{info.meta.dir}</span>}
          <span>
            begun <Time at={info.meta.created_at} />
          </span>
          {watches > 0 && (
            <a href={href("watches")}>
              {watches} {watches === 1 ? "watch" : "watches"}
            </a>
          )}
          {(info.inbox?.pending ?? 0) > 0 && <a href={href("inbox")}>{info.inbox?.pending} in the inbox</a>}
          {info.held && <span>Notices are held until your next prompt</span>}
          {view.state.contextUsed !== undefined && view.state.contextSize ? <span>{Math.round((100 * view.state.contextUsed) / view.state.contextSize)} % of the context is used</span> : null}
        </div>
      )}
      <Confirm
        open={asking === "reset"}
        onClose={() => setAsking(null)}
        title="Reset the context?"
        text={`The agent of “${id}” forgets this conversation and is handed its MCP servers anew. The transcript, the watches and the inbox stay.`}
        verb="Reset the context"
        act={() => api.ask("POST", path("sessions", id, "reset"), {}, { timeout: 90_000 })}
      />
      <Confirm
        open={asking === "stop"}
        onClose={() => setAsking(null)}
        title="Stop this session?"
        text={`The agent of “${id}” ends, and its watches with it. The transcript stays, and the session can be started again.`}
        verb="Stop"
        act={() => api.ask("POST", path("sessions", id, "stop"), {})}
      />
      <Confirm
        open={asking === "remove"}
        onClose={() => setAsking(null)}
        title="Remove this session?"
        text={`The transcript, the inbox and the watches of “${id}” are deleted. This cannot be taken back.`}
        verb="Remove for good"
        act={async () => {
          await api.ask("DELETE", path("sessions", id));
          go("sessions");
        }}
      />
    </>
  );
}
