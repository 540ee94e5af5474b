import type { Now } from "../live/session";
import { Badge } from "../ui/Badge";
import { SafeText } from "../ui/SafeText";
import { oneLine } from "./EntryRow";
import { toolTone, toolWords } from "./rows";

/** What the agent says and does at this moment. */
export function NowRows({ now }: { now: Now }) {
  return (
    <>
      {now.plan.length > 0 && (
        <div className="entry tool">
          <div className="box">
            <h2 className="small">Plan</h2>
            <ol>
              {now.plan.map((p, i) => (
                <li key={i} className="wrap">
                  {p.status === "completed" ? "✓ " : p.status === "in_progress" ? "▸ " : "· "}
                  {p.content}
                </li>
              ))}
            </ol>
          </div>
        </div>
      )}
      {now.thought && (
        <div className="entry thought muted">
          <span className="wrap">Thinking: {oneLine(now.thought.slice(-200))}</span>
        </div>
      )}
      {now.tools.map((t) => (
        <div className="entry tool" key={t.id}>
          <div className="box row">
            {t.status === "completed" || t.status === "failed" ? null : <span className="spinner" aria-hidden="true" />}
            <span className="mono cut grow">{t.title || t.id}</span>
            <Badge tone={toolTone(t.status)}>{toolWords[t.status ?? ""] ?? (t.status || "Waiting")}</Badge>
          </div>
        </div>
      ))}
      {now.text && (
        <div className="entry assistant">
          <div className="who">
            <span>Agent</span>
            <span>is speaking</span>
          </div>
          <div className="caret">
            <SafeText text={now.text} />
          </div>
        </div>
      )}
    </>
  );
}
