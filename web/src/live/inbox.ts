import type { Room } from "./room";
import type { InboxStatus, Maybe, Notice } from "./wire";

export interface InboxState {
  readonly notices: readonly Notice[]; // newest first
  readonly next: string; // where older ones begin, empty for none
  readonly agents: readonly InboxStatus[];
}

const maxNotices = 5_000;

export const inboxRoom: Room<InboxState> = {
  initial: { notices: [], next: "", agents: [] },
  snapshot(_old, data) {
    const s = data as { notices?: Maybe<Notice[]>; next?: Maybe<string>; agents?: Maybe<InboxStatus[]> };
    return { notices: s.notices ?? [], next: s.next ?? "", agents: s.agents ?? [] };
  },
  pushes(old, pushes) {
    let { notices, next, agents } = old;
    for (const { action, data } of pushes) {
      if (action === "inbox.notice") notices = withNotice(notices, (data as { notice: Notice }).notice);
      else if (action === "inbox.agent") {
        const status = (data as { status: InboxStatus }).status;
        agents = agents.some((a) => a.agent === status.agent) ? agents.map((a) => (a.agent === status.agent ? status : a)) : [...agents, status];
      } else if (action === "inbox.agent_removed") {
        const gone = (data as { agent: string }).agent;
        agents = agents.filter((a) => a.agent !== gone);
      } else if (action === "inbox.older") {
        const page = data as { notices?: Maybe<Notice[]>; next?: Maybe<string> };
        const known = new Set(notices.map((n) => n.id));
        notices = [...notices, ...(page.notices ?? []).filter((n) => !known.has(n.id))];
        next = page.next ?? "";
      }
    }
    return { notices, next, agents };
  },
};

function withNotice(all: readonly Notice[], n: Notice): readonly Notice[] {
  const at = all.findIndex((o) => o.id === n.id);
  if (at >= 0) return all.with(at, { ...n, steps: n.steps ?? all[at]?.steps });
  return [n, ...all].slice(0, maxNotices);
}

export type NoticeTone = "waits" | "done" | "lost";

const states: Record<string, { label: string; words: string; tone: NoticeTone }> = {
  persisted: { label: "Waiting", words: "It lies in the inbox, on disk. Nobody was told yet.", tone: "waits" },
  notified: { label: "Host was told", words: "The agent's host was written to. That is no proof of anything.", tone: "waits" },
  woken: { label: "Turn began", words: "There is proof that a turn of the agent began.", tone: "waits" },
  suppressed: { label: "Withdrawn", words: "It was withdrawn before it was shown.", tone: "done" },
  expired: { label: "Expired", words: "It waited for longer than inboxes keep what waits.", tone: "lost" },
  dead: { label: "Undeliverable", words: "It was offered as often as it may be, and never seen.", tone: "lost" },
  seen: { label: "Seen", words: "The model's side showed it.", tone: "done" },
  acked: { label: "Acknowledged", words: "The agent, or a person, said so.", tone: "done" },
};

export const noticeStates = Object.keys(states);

/** A delivery state in words; one that is not known is shown as it is. */
export function noticeWords(state: string): { label: string; words: string; tone: NoticeTone } {
  return Object.hasOwn(states, state) ? (states[state] as { label: string; words: string; tone: NoticeTone }) : { label: state, words: "", tone: "waits" };
}

export function pending(n: Notice): boolean {
  return n.state === "persisted" || n.state === "notified" || n.state === "woken";
}
