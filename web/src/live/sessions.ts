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

export type StateTone = "busy" | "idle" | "ended" | "asks" | "failed" | "warns";

/** The colours of badges. */
export const stateTones = { busy: "blue", idle: "grey", ended: "grey", asks: "amber", failed: "red", warns: "amber" } as const;

const troubles: Record<string, { label: string; tone: StateTone }> = {
  agent_unavailable: { label: "Agent unavailable", tone: "failed" },
  agent_exited: { label: "Agent ended", tone: "warns" },
  turn_failed: { label: "Last turn failed", tone: "failed" },
  turn_cut_off: { label: "Last turn cut off", tone: "warns" },
};

/** What is wrong with a session, in words; nothing while it is being tried again. */
export function troubleWords(s: SessionInfo): { label: string; tone: StateTone } | null {
  if (!s.trouble || ["starting", "running", "busy", "draining"].includes(s.state)) return null;
  const { kind } = s.trouble;
  return Object.hasOwn(troubles, kind) ? (troubles[kind] as { label: string; tone: StateTone }) : { label: kind, tone: "failed" };
}

/** The state of a session in words. */
export function stateWords(s: SessionInfo): { label: string; tone: StateTone } {
  if ((s.questions ?? s.asked?.length ?? 0) > 0) return { label: "Waits for your answer", tone: "asks" };
  switch (s.state) {
    case "fresh":
      return troubleWords(s) ?? { label: "Not started yet", tone: "idle" };
    case "starting":
      return { label: "Starting", tone: "busy" };
    case "running":
      return { label: "Working", tone: "busy" };
    case "busy":
      return { label: "Working on its own", tone: "busy" };
    case "idle":
      return troubleWords(s) ?? { label: "Idle", tone: "idle" };
    case "draining":
      return { label: "Stopping", tone: "busy" };
    case "closed":
    case "stopped":
      return { label: "Stopped", tone: "ended" };
  }
  return { label: s.state || "Unknown", tone: "idle" };
}
