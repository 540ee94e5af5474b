import type { Sessions } from "../live/sessions";
import { stateTones, stateWords, troubleWords } from "../live/sessions";
import { href } from "../route";
import { Badge } from "../ui/Badge";
import { Time } from "../ui/Time";

export function SessionList({ sessions, chosen }: { sessions: Sessions; chosen: string }) {
  return (
    <ul className="sessionlist">
      {sessions.map((s) => {
        const state = stateWords(s);
        const left = state.tone === "ended" ? troubleWords(s) : null;
        const waiting = s.inputs + s.notices;
        return (
          <li key={s.meta.id}>
            <a href={href("sessions", s.meta.id)} aria-current={s.meta.id === chosen ? "true" : undefined}>
              <span className="row spread">
                <span className="name cut">{s.meta.id}</span>
                <Badge tone={stateTones[state.tone]} plain={state.tone === "ended"}>
                  {state.label}
                </Badge>
              </span>
              <span className="row spread tiny muted">
                <span className="cut">{s.meta.agent || s.agent?.name || s.meta.profile || "agent not started"}</span>
                <Time at={s.meta.updated_at} />
              </span>
              {left && <span className="tiny muted">{left.label}</span>}
              {waiting > 0 && <span className="tiny muted">{waiting} waiting to be heard</span>}
            </a>
          </li>
        );
      })}
    </ul>
  );
}
