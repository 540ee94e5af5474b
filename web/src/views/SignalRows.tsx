import { useState } from "react";
import type { Signal } from "../live/wire";
import { Badge } from "../ui/Badge";
import { Block } from "../ui/Block";
import { Button } from "../ui/Button";
import { Time } from "../ui/Time";

const page = 100;

const words: Record<string, string> = {
  inform: "Tells", query: "Asks", delegate: "Hands over", ack: "Answers", warn: "Warns", urgent: "Urgent",
};
const tones: Record<string, "blue" | "amber" | "red" | "grey"> = { query: "blue", delegate: "blue", warn: "amber", urgent: "red" };

/** Signals, the newest first. */
export function SignalRows({ signals }: { signals: readonly Signal[] }) {
  const [most, setMost] = useState(page);
  return (
    <section className="card list" aria-label="Signals">
      <h2 className="title">Signals</h2>
      {signals.slice(0, most).map((s) => (
        <article className="item" key={s.id} aria-label={`From ${s.sender} to ${s.recipient}`}>
          <div className="row spread flow">
            <span className="small wrap">
              <strong>{s.sender}</strong> → <strong>{s.recipient === "*" ? "everybody" : s.recipient}</strong>
            </span>
            <span className="row">
              {s.priority === "urgent" && s.type !== "urgent" && <Badge tone="red">Urgent</Badge>}
              <Badge tone={tones[s.type] ?? "grey"}>{words[s.type] ?? s.type}</Badge>
            </span>
          </div>
          <p className="text-pre small wrap">{s.content}</p>
          <p className="tiny muted">
            <Time at={s.time} /> · no. {s.sequence}
            {s.reply_to ? ` · answers ${s.reply_to}` : ""}
            {s.read_by?.length ? ` · read by ${s.read_by.join(", ")}` : ""}
            {s.depth ? " · out of a turn that a signal began" : ""}
          </p>
          {s.metadata !== undefined && s.metadata !== null && (
            <details className="tiny">
              <summary>Metadata</summary>
              <Block label="Metadata" value={s.metadata} />
            </details>
          )}
        </article>
      ))}
      {signals.length > most && (
        <div className="item">
          <Button onClick={() => setMost(most + page)}>Show older ones</Button>
        </div>
      )}
    </section>
  );
}
