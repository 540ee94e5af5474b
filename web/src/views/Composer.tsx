import { useEffect, useRef, useState } from "react";
import { message, path } from "../live/api";
import type { SessionState } from "../live/session";
import type { SessionInfo } from "../live/wire";
import { usePage, useStatus } from "../page";
import { Button } from "../ui/Button";
import { Problem } from "../ui/Problem";
import { Activity } from "./Activity";

const draftKey = (id: string): string => "ossicle.draft." + id;

// A draft outlives a reload; where there is no storage it lasts as long as the view.
function draftOf(id: string): string {
  try {
    return sessionStorage.getItem(draftKey(id)) ?? "";
  } catch {
    return "";
  }
}

function keepDraft(id: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(draftKey(id), text);
    else sessionStorage.removeItem(draftKey(id));
  } catch {
    // See above.
  }
}

interface Queued {
  id: string;
  text: string;
}

/** Where a person writes, and what is going on meanwhile. */
export function Composer({ id, info, state }: { id: string; info: SessionInfo | null; state: SessionState }) {
  const { api } = usePage();
  const status = useStatus();
  const [text, setText] = useState(() => draftOf(id));
  const [sending, setSending] = useState(false);
  const [error, setError] = useState("");
  const [queued, setQueued] = useState<readonly Queued[]>([]);
  const [cancelling, setCancelling] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const running = info?.running ?? false;
  const working = !!info && ["running", "starting", "busy"].includes(info.state);

  useEffect(() => {
    if (queued.length === 0) return;
    const heard = new Set(state.entries.slice(-200).filter((e) => e.kind === "user").map((e) => e.id));
    if (queued.some((q) => heard.has(q.id))) setQueued(queued.filter((q) => !heard.has(q.id)));
  }, [state.entries, queued]);
  useEffect(() => {
    if (!working) setCancelling(false);
  }, [working]);

  const write = (t: string): void => {
    setText(t);
    keepDraft(id, t);
  };
  const send = async (): Promise<void> => {
    const said = text.trim();
    if (!said || sending || !running) return;
    setSending(true);
    setError("");
    try {
      const { id: input } = await api.ask<{ id: string }>("POST", path("sessions", id, "prompt"), { text: said });
      setQueued((q) => [...q.slice(-20), { id: input, text: said }]);
      // What was written since is not what was sent.
      if ((area.current?.value ?? draftOf(id)) === text) write("");
    } catch (e) {
      setError(message(e));
    } finally {
      setSending(false);
      area.current?.focus();
    }
  };
  const cancel = async (): Promise<void> => {
    setCancelling(true);
    setError("");
    try {
      await api.ask("POST", path("sessions", id, "cancel"), {});
    } catch (e) {
      setError(message(e));
      setCancelling(false);
    }
  };

  if (info && !running) {
    return (
      <div className="composer">
        <p className="small muted" role="status">
          This session does not run. Its transcript is kept
          {info.meta.profile ? "; the menu above starts it again." : "."}
        </p>
      </div>
    );
  }
  return (
    <div className="composer">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Activity info={info} state={state} cancelling={cancelling} />
        {queued.length > 0 && (
          <p className="queued cut" role="status">
            {working ? "Will be heard after this turn: " : "On its way: "}
            {queued.map((q) => q.text).join(" · ")}
          </p>
        )}
        {queued.length === 0 && (info?.inputs ?? 0) > 0 && (
          <p className="queued" role="status">
            {info?.inputs} {info?.inputs === 1 ? "message waits" : "messages wait"} to be heard
          </p>
        )}
        <Problem text={error} />
        <div className="row">
          <textarea
            ref={area}
            className="input"
            rows={1}
            aria-label="Message to the agent"
            placeholder="Message"
            value={text}
            onChange={(e) => write(e.target.value)}
            onKeyDown={(e) => {
              if (e.key !== "Enter" || e.shiftKey || e.altKey || e.ctrlKey || e.metaKey || e.nativeEvent.isComposing) return;
              e.preventDefault();
              void send();
            }}
          />
          {working && (
            <Button icon="stop" aria-label="Cancel the turn" busy={cancelling} onClick={() => void cancel()}>
              <span className="words">Cancel</span>
            </Button>
          )}
          <Button type="submit" kind="primary" icon="send" aria-label="Send" busy={sending} disabled={!text.trim() || !running || status === "connecting"}>
            <span className="words">Send</span>
          </Button>
        </div>
      </form>
    </div>
  );
}
