import type { Room } from "./room";
import type { Maybe } from "./wire";

/** A sandbox, as far as the page reads it. */
export interface Sandbox {
  id: string;
  state: string;
  profile?: string;
  reason?: string;
  created_at?: string;
  released_at?: string;
  ended_at?: string;
  idle_seconds?: number;
  exec_seconds?: number;
  [member: string]: unknown;
}

export const sandboxesRoom: Room<readonly Sandbox[]> = {
  initial: [],
  snapshot: (_old, data) => (data as { sandboxes?: Maybe<Sandbox[]> } | null)?.sandboxes ?? [],
  pushes(old, pushes) {
    let all = old;
    for (const { action, data } of pushes) {
      if (action === "sandboxes.changed") {
        const s = (data as { sandbox?: Sandbox }).sandbox;
        if (!s) continue;
        all = all.some((o) => o.id === s.id) ? all.map((o) => (o.id === s.id ? s : o)) : [s, ...all];
      } else if (action === "sandboxes.removed") all = all.filter((o) => o.id !== (data as { id: string }).id);
    }
    return all;
  },
};
