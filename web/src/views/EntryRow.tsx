import type { ReactNode } from "react";
import { memo } from "react";
import type { Entry } from "../live/wire";
import { Badge } from "../ui/Badge";
import { Block } from "../ui/Block";
import { SafeText } from "../ui/SafeText";
import { Clock } from "../ui/Time";
import { decision, toolTone, toolWords } from "./rows";

interface Props {
  entry: Entry;
  open: boolean;
  onOpen: (seq: number, open: boolean) => void;
  /** It is the beginning of a turn that nobody ended. */
  cut?: boolean;
}

/** One entry of a transcript, whatever it is. */
export const EntryRow = memo(function EntryRow({ entry: e, open, onOpen, cut }: Props) {
  const fold = (summary: ReactNode, inside: ReactNode): ReactNode => (
    <details open={open} onToggle={(t) => onOpen(e.seq, t.currentTarget.open)}>
      <summary>{summary}</summary>
      {open && <div className="inner">{inside}</div>}
    </details>
  );
  switch (e.kind) {
    case "user":
      return (
        <div className="entry user">
          <div className="who">
            <span>{e.from || "You"}</span>
            <Clock at={e.time} />
          </div>
          <div className="said text">{e.text}</div>
        </div>
      );
    case "assistant":
      return (
        <div className={`entry assistant ${e.suppressed ? "suppressed" : ""}`}>
          <div className="who">
            <span>Agent</span>
            <Clock at={e.time} />
            {noReply(e.text) && <span>not published: it chose to say nothing</span>}
          </div>
          <SafeText text={e.text ?? ""} />
        </div>
      );
    case "thought":
      return <div className="entry thought">{fold(<span className="muted cut">Thought: {oneLine(e.text)}</span>, <div className="text muted">{e.text}</div>)}</div>;
    case "monitor_event":
      return (
        <div className="entry event">
          <div className="box">
            {fold(
              <>
                <Badge tone="blue" plain>
                  Event
                </Badge>
                <span className="cut grow">{e.description || e.task_id || "notice"}</span>
                <Clock at={e.time} />
              </>,
              <>
                <pre className="block" tabIndex={0} role="region" aria-label="What was noticed">
                  {e.text}
                </pre>
                {e.note && <p className="tiny muted wrap">Told with it: {e.note}</p>}
              </>,
            )}
          </div>
        </div>
      );
    case "tool":
      return (
        <div className="entry tool">
          <div className="box">
            {fold(
              <>
                <span className="mono cut grow">{e.title || e.id || "tool"}</span>
                <Badge tone={toolTone(e.status)}>{toolWords[e.status ?? ""] ?? (e.status || "Unknown")}</Badge>
                <Clock at={e.time} />
              </>,
              <>
                {e.text && <p className="tiny muted">Kind: {e.text}</p>}
                <Block label="Input" value={e.input} />
                <Block label="Output" value={e.output} />
                {e.error && <p className="note red">{e.error}</p>}
              </>,
            )}
          </div>
        </div>
      );
    case "permission":
      return (
        <div className="entry system">
          Permission for <span className="mono">{e.title || e.id}</span>: {decision(e.status)}
          {e.text ? ` (${e.text})` : ""} · <Clock at={e.time} />
        </div>
      );
    case "context":
      return <div className="entry system">{fold(<span className="cut">ossicle told the agent: {oneLine(e.text)}</span>, <div className="text">{e.text}</div>)}</div>;
    case "run_start":
      if (cut) {
        return (
          <div className="entry system red" role="note">
            This turn was cut off: ossicle went away in its midst · <Clock at={e.time} />
          </div>
        );
      }
      return <Line>{startWords(e)} · <Clock at={e.time} /></Line>;
    case "run_end":
      return failed(e) ? (
        <div className="entry system red" role="note">
          {failed(e)} · <Clock at={e.time} />
        </div>
      ) : (
        <Line>{endWords(e)} · <Clock at={e.time} /></Line>
      );
    case "agent":
      return (
        <div className={`entry system ${e.error ? "red" : ""}`}>
          {agentWords(e)} · <Clock at={e.time} />
        </div>
      );
    case "missing":
      return <div className="entry system red">{e.text || "Entries are missing here"}</div>;
    case "queue_operation":
      return (
        <div className="entry system">
          A notice left the queue unheard: {e.description || e.task_id || e.id} · <Clock at={e.time} />
        </div>
      );
  }
  return (
    <div className="entry system">
      {fold(
        <span className="cut">
          {e.kind === "unknown" ? "The agent sent something that ossicle does not know" : `Entry of an unknown kind “${e.kind}”`}
          {e.title ? `: ${e.title}` : ""}
        </span>,
        <>
          {e.text && <div className="text">{e.text}</div>}
          <Block label="As it came" value={e.input ?? e} />
        </>,
      )}
    </div>
  );
});

function Line({ children }: { children: ReactNode }) {
  return (
    <div className="entry system tiny">
      <div className="line">
        <span>{children}</span>
      </div>
    </div>
  );
}

export function oneLine(text: string | undefined): string {
  return (text ?? "").replace(/\s+/g, " ").trim().slice(0, 200);
}

function noReply(text: string | undefined): boolean {
  return (text ?? "").split("\n").some((l) => l.trim() === "NO_REPLY");
}

function startWords(e: Entry): string {
  const inputs = e.inputs?.length ?? 0;
  const notices = e.notices?.length ?? 0;
  const parts = [inputs ? `${inputs} ${inputs === 1 ? "message" : "messages"}` : "", notices ? `${notices} ${notices === 1 ? "notice" : "notices"}` : ""].filter(Boolean);
  return parts.length ? `Turn for ${parts.join(" and ")}` : "Turn";
}

function agentWords(e: Entry): string {
  switch (e.title) {
    case "started":
      return `The agent started${e.text ? `: ${e.text}` : ""}`;
    case "unavailable":
      return `The agent could not be started${because(e)}`;
    case "exited":
      return `The agent ended${because(e)}`;
    case "reset":
      return "The context was reset: what came before is forgotten";
  }
  return [e.title, e.text, e.error].filter(Boolean).join(": ") || "The agent changed";
}

const stops: Record<string, string> = {
  end_turn: "Done",
  cancelled: "Cancelled",
  max_tokens: "Ended: the model's limit of tokens",
  max_turn_requests: "Ended: too many rounds",
  refusal: "The agent refused",
};

/** An error behind a sentence that says what it begins with. */
function because(e: Entry): string {
  const why = (e.error ?? "").replace(/^start agent: /, "").replace(/^run agent: it exited(: )?/, "");
  return why && `: ${why}`;
}

/** How a turn broke; nothing if somebody wanted its end. */
function failed(e: Entry): string {
  switch (e.cause) {
    case "cancelled":
    case "reset":
      return "";
    case "cut_off":
      return "This turn was cut off: ossicle went away in its midst";
    case "unavailable":
      return `The turn failed: the agent could not be started${because(e)}`;
    case "exited":
      return `The turn failed: the agent ended in its midst${because(e)}`;
    case "stopped":
      return "This turn was cut off: the session was stopped in its midst";
  }
  return e.error && !/the run was cancelled$/.test(e.error) ? `The turn failed: ${e.error}` : "";
}

function endWords(e: Entry): string {
  if (e.error) return "Cancelled";
  const words = stops[e.status ?? ""] ?? (e.status ? `Ended: ${e.status}` : "Done");
  return e.suppressed ? words + ", nothing to say" : words;
}
