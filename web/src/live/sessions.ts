import type { Room } from "./room";
import type { Maybe, SessionInfo } from "./wire";

export type Sessions = readonly SessionInfo[];

/** All sessions, the newest activity first. */
export const sessionsRoom: Room<Sessions> = {
  initial: [],
  snapshot: (_old, data) => sorted((data as { sessions?: Maybe<SessionInfo[]> } | null)?.sessions ?? []),
  pushes(old, pushes) {
    const byId = new Map(old.map((s) => [s.meta.id, s]));
    let changed = false;
    for (const { action, data } of pushes) {
      if (action === "sessions.changed") {
        const s = (data as { session?: SessionInfo }).session;
        if (!s?.meta?.id) continue;
        byId.set(s.meta.id, s);
        changed = true;
      } else if (action === "sessions.removed") {
        changed = byId.delete((data as { id: string }).id) || changed;
      }
    }
    return changed ? sorted([...byId.values()]) : old;
  },
};

function sorted(all: readonly SessionInfo[]): Sessions {
  return [...all].sort((a, b) => Date.parse(b.meta.updated_at) - Date.parse(a.meta.updated_at) || (a.meta.id < b.meta.id ? -1 : 1));
}

export type StateTone = "busy" | "idle" | "ended" | "asks";

/** The state of a session in words. */
export function stateWords(s: SessionInfo): { label: string; tone: StateTone } {
  if ((s.questions ?? s.asked?.length ?? 0) > 0) return { label: "Waits for your answer", tone: "asks" };
  switch (s.state) {
    case "fresh":
      return { label: "Not started yet", tone: "idle" };
    case "starting":
      return { label: "Starting", tone: "busy" };
    case "running":
      return { label: "Working", tone: "busy" };
    case "busy":
      return { label: "Working on its own", tone: "busy" };
    case "idle":
      return { label: "Idle", tone: "idle" };
    case "draining":
      return { label: "Stopping", tone: "busy" };
    case "closed":
    case "stopped":
      return { label: "Stopped", tone: "ended" };
  }
  return { label: s.state || "Unknown", tone: "idle" };
}
