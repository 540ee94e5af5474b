import type { Room } from "./room";
import type { Maybe } from "./wire";

export interface SandboxEvent {
  at?: string;
  time?: string;
  [member: string]: unknown;
}

/** A sandbox and its worker, as the daemon shows them. */
export interface Sandbox {
  id: string;
  profile: string;
  driver?: string;
  tier?: string;
  state: string;
  owner?: string;
  here?: boolean;
  agent?: string;
  created?: string;
  heartbeat_age_seconds?: number;
  idle_seconds?: number;
  idle_budget_seconds?: number;
  exec_seconds?: number;
  exec_budget_seconds?: number;
  active_calls?: number;
  workspace_bytes?: number;
  tools?: Maybe<string[]>;
  failure?: string;
  detail?: string;
  release?: string;
  outputs_flushed?: boolean;
  outputs?: Maybe<{ uri?: string; name?: string; size?: number }[]>;
  [member: string]: unknown;
}

const maxSandboxes = 1_000;

export const sandboxesRoom: Room<readonly Sandbox[]> = {
  initial: [],
  snapshot: (_old, data) => (data as { sandboxes?: Maybe<Sandbox[]> } | null)?.sandboxes ?? [],
  pushes(old, pushes) {
    let all = old;
    for (const { action, data } of pushes) {
      if (action === "sandboxes.changed") {
        const s = (data as { sandbox?: Sandbox }).sandbox;
        if (s) all = all.some((o) => o.id === s.id) ? all.map((o) => (o.id === s.id ? s : o)) : [s, ...all].slice(0, maxSandboxes);
      } else if (action === "sandboxes.removed") {
        const gone = (data as { id: string }).id;
        all = all.filter((o) => o.id !== gone);
      }
    }
    return all;
  },
};

export type SandboxTone = "green" | "amber" | "red" | "grey";

const states: Record<string, { label: string; tone: SandboxTone }> = {
  awaiting_dial: { label: "Waits for its worker", tone: "amber" },
  handshaking: { label: "Worker connects", tone: "amber" },
  readying: { label: "Tools get ready", tone: "amber" },
  running: { label: "Running", tone: "green" },
  detached: { label: "Connection lost, may come back", tone: "amber" },
  releasing: { label: "Ending", tone: "amber" },
  released: { label: "Released", tone: "grey" },
  failed: { label: "Failed", tone: "red" },
};

/** A state in words; one that is not known is shown as it is. Killed is what somebody wanted: no fault. */
export function sandboxWords({ state, failure }: Sandbox): { label: string; tone: SandboxTone } {
  if (failure === "killed") return { label: "Killed", tone: "grey" };
  return Object.hasOwn(states, state) ? (states[state] as { label: string; tone: SandboxTone }) : { label: state, tone: "grey" };
}

export function ended(s: Sandbox): boolean {
  return s.state === "released" || s.state === "failed";
}

// Failures and reasons of the worker channel.
const causes: Record<string, string> = {
  dial_timeout: "its worker did not come in time",
  handshake_timeout: "its worker came, and did not say in time what it is",
  ready_timeout: "its tools were not ready in time",
  channel_version: "its worker speaks another version of the channel",
  heartbeat_lost: "its worker gave no sign of life any more",
  session_mismatch: "its worker is that of another sandbox",
  bad_frames: "its worker broke the protocol",
  channel_lost: "the connection was lost and did not come back",
  tools_mismatch: "its tools are not those of its profile",
  exec_deadline: "its time was over",
  sandbox_exited: "it ended by itself",
  idle: "nobody used it for long enough",
  explicit: "whoever asked for it was done",
  deadline: "its time was nearly over",
  failed: "the session that it was for failed",
};

/** Why a sandbox ended, in words; empty while it lives. A cause that is not known is shown as it is. */
export function causeWords(s: Sandbox): string {
  const cause = s.failure === "killed" ? undefined : (s.failure ?? s.release);
  return [cause && Object.hasOwn(causes, cause) ? causes[cause] : cause, s.detail].filter(Boolean).join(": ");
}
