import type { Sessions } from "../live/sessions";
import { stateWords } from "../live/sessions";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Time } from "../ui/Time";

const tones = { busy: "blue", idle: "grey", ended: "grey", asks: "amber" } as const;

export function SessionList({ sessions, chosen }: { sessions: Sessions; chosen: string }) {
  return (
    <ul className="sessionlist">
      {sessions.map((s) => {
        const state = stateWords(s);
        const waiting = s.inputs + s.notices;
        return (
          <li key={s.meta.id}>
            <a href={href("sessions", s.meta.id)} aria-current={s.meta.id === chosen ? "true" : undefined}>
              <span className="row spread">
                <span className="name cut">{s.meta.id}</span>
                <Badge tone={tones[state.tone]} plain={state.tone === "ended"}>
                  {state.label}
                </Badge>
              </span>
              <span className="row spread tiny muted">
                <span className="cut">{s.meta.agent || s.agent?.name || s.meta.profile || "agent not started"}</span>
                <Time at={s.meta.updated_at} />
              </span>
              {waiting > 0 && <span className="tiny muted">{waiting} waiting to be heard</span>}
            </a>
          </li>
        );
      })}
    </ul>
  );
}
