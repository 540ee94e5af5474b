import { useState } from "react";
import { message, path } from "../live/api";
import type { PermissionOption, Question } from "../live/wire";
import { usePage } from "../page";
import { Block } from "../ui/Block";
import { Button } from "../ui/Button";
import { Problem } from "../ui/Problem";
import { Time } from "../ui/Time";

// Options are told apart by what they mean, never by their place or name.
const order = ["allow_once", "allow_always", "reject_once", "reject_always"];
const words: Record<string, string> = {
  allow_once: "Allow once",
  allow_always: "Allow from now on",
  reject_once: "Reject",
  reject_always: "Reject from now on",
};

function label(o: PermissionOption): string {
  const meaning = words[o.kind] ?? `${o.name || o.id} (${o.kind})`;
  const name = o.name?.trim();
  return name && words[o.kind] && name.toLowerCase() !== meaning.toLowerCase() ? `${meaning}: “${name}”` : meaning;
}

/** A permission request of the agent, which waits for an answer. */
export function Asked({ session, question: q }: { session: string; question: Question }) {
  const { api } = usePage();
  const [busy, setBusy] = useState("");
  const [error, setError] = useState("");
  const options = [...(q.options ?? [])].sort((a, b) => rank(a.kind) - rank(b.kind));
  const answer = async (option: string): Promise<void> => {
    setBusy(option || "none");
    setError("");
    try {
      await api.ask("POST", path("sessions", session, "answer"), { question: q.id, option });
    } catch (e) {
      setError(message(e));
      setBusy("");
    }
  };
  return (
    <div className="entry">
      <section className="ask" aria-label="The agent asks for permission">
        <h2 className="wrap">
          The agent wants to use <span className="mono">{q.call.title || q.call.id || "a tool"}</span>
        </h2>
        <p className="tiny muted">
          {q.call.kind ? `Kind: ${q.call.kind}` : "Kind not said"}
          {q.until ? (
            <>
              {" "}
              · rejected of itself <Time at={q.until} />
            </>
          ) : null}
        </p>
        <Block label="With" value={q.call.input} />
        <Problem text={error} />
        <div className="buttons">
          {options.map((o) => (
            <Button key={o.id} kind={o.kind === "allow_once" ? "primary" : o.kind.startsWith("reject") ? "danger" : "plain"} busy={busy === o.id} disabled={busy !== ""} onClick={() => void answer(o.id)}>
              {label(o)}
            </Button>
          ))}
          <Button kind="quiet" busy={busy === "none"} disabled={busy !== ""} onClick={() => void answer("")}>
            Decide nothing (ends the turn)
          </Button>
        </div>
      </section>
    </div>
  );
}

function rank(kind: string): number {
  const r = order.indexOf(kind);
  return r < 0 ? order.length : r;
}
