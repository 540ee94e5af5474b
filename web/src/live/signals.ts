import type { Room } from "./room";
import type { BoardEntry, Collaboration, Maybe, Member, Signal } from "./wire";

export interface SignalsState {
  readonly agents: readonly Member[];
  readonly signals: readonly Signal[]; // newest first
  readonly whiteboard: readonly BoardEntry[];
}

const maxSignals = 5_000;

export const signalsRoom: Room<SignalsState> = {
  initial: { agents: [], signals: [], whiteboard: [] },
  snapshot(_old, data) {
    const c = data as Collaboration;
    return { agents: c.agents ?? [], signals: c.signals ?? [], whiteboard: c.whiteboard ?? [] };
  },
  pushes(old, pushes) {
    let { agents, signals, whiteboard } = old;
    for (const { action, data } of pushes) {
      const d = data as { signal?: Signal; agents?: Maybe<Member[]>; entry?: BoardEntry };
      if (action === "signals.signal" && d.signal) {
        const s = d.signal;
        const at = signals.findIndex((o) => o.id === s.id);
        signals = at >= 0 ? signals.with(at, s) : [s, ...signals].sort((a, b) => b.sequence - a.sequence).slice(0, maxSignals);
      } else if (action === "signals.agents") agents = d.agents ?? [];
      else if (action === "signals.note" && d.entry) {
        const e = d.entry;
        whiteboard = whiteboard.some((o) => o.key === e.key) ? whiteboard.map((o) => (o.key === e.key ? e : o)) : [...whiteboard, e];
      }
    }
    return { agents, signals, whiteboard };
  },
};
