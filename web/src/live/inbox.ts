import { compareTimes } from "./report";
import type { Room } from "./room";
import type { InboxStatus, Maybe, Notice } from "./wire";

/** What is asked of the inboxes; an empty word asks for everything. */
export interface Filter {
  readonly agent: string;
  readonly state: string;
  readonly source: string;
}

export const everything: Filter = { agent: "", state: "", source: "" };

export function sameFilter(a: Filter, b: Filter): boolean {
  return a.agent === b.agent && a.state === b.state && a.source === b.source;
}

/** Notices that the daemon found, without a hole down to where `next` begins. */
export interface Found {
  readonly filter: Filter;
  readonly notices: readonly Notice[]; // newest first
  readonly next: string; // where older ones begin, empty for none
  readonly loaded: boolean; // the first page is there, and nothing was missed since
  // What changed of notices that are not in the list: a page that was read before that
  // must not bring them as they were.
  readonly late: readonly Notice[];
}

export interface InboxState {
  readonly all: Found;
  readonly found: Found | null; // what a filter asks for
  readonly agents: readonly InboxStatus[];
}

const maxNotices = 5_000;
const maxLate = 500;

const nothing: Found = { filter: everything, notices: [], next: "", loaded: false, late: [] };

interface Page {
  notices?: Maybe<Notice[]>;
  next?: Maybe<string>;
}

export const inboxRoom: Room<InboxState> = {
  initial: { all: nothing, found: null, agents: [] },
  snapshot(old, data) {
    const s = data as Page & { agents?: Maybe<InboxStatus[]> };
    // What a filter found is shown until it has been asked for again.
    return { all: withPage(nothing, s), found: old.found && { ...old.found, loaded: false, late: [] }, agents: s.agents ?? [] };
  },
  pushes(old, pushes) {
    let { all, found, agents } = old;
    for (const { action, data } of pushes) {
      if (action === "inbox.notice") {
        const n = (data as { notice: Notice }).notice;
        all = withNotice(all, n);
        found = found && withNotice(found, n);
      } else if (action === "inbox.agent") {
        const status = (data as { status: InboxStatus }).status;
        agents = agents.some((a) => a.agent === status.agent) ? agents.map((a) => (a.agent === status.agent ? status : a)) : [...agents, status];
      } else if (action === "inbox.agent_removed") {
        const gone = (data as { agent: string }).agent;
        agents = agents.filter((a) => a.agent !== gone);
      } else if (action === "inbox.find") {
        const { filter } = data as { filter: Filter };
        found = sameFilter(filter, everything) ? null : { ...nothing, filter };
      } else if (action === "inbox.page") {
        const { filter, after, page } = data as { filter: Filter; after: string; page: Page };
        // One that follows on what is not there any more would leave a hole.
        const follows = (l: Found): boolean => sameFilter(filter, l.filter) && (after === "" || (l.loaded && l.next === after));
        if (follows(all)) all = withPage(all, page);
        else if (found && follows(found)) found = withPage(after === "" ? { ...found, notices: [] } : found, page);
      }
    }
    return { all, found, agents };
  },
};

function fits(n: Notice, f: Filter): boolean {
  return (!f.agent || n.agent === f.agent) && (!f.state || n.state === f.state) && (!f.source || n.source === f.source);
}

function withNotice(l: Found, n: Notice): Found {
  const at = l.notices.findIndex((o) => o.id === n.id);
  if (at >= 0 && fits(n, l.filter)) return { ...l, notices: l.notices.with(at, { ...n, steps: n.steps ?? l.notices[at]?.steps }) };
  if (at >= 0) return kept({ ...l, notices: l.notices.toSpliced(at, 1) }, n);
  const place = l.notices.findIndex((o) => compareTimes(o.created_at, n.created_at) <= 0);
  // Below the end of what is loaded it comes with its page.
  if (!l.loaded || !fits(n, l.filter) || (place < 0 && l.next !== "")) return kept(l, n);
  return { ...l, notices: l.notices.toSpliced(place < 0 ? l.notices.length : place, 0, n).slice(0, maxNotices) };
}

function kept(l: Found, n: Notice): Found {
  return { ...l, late: [...l.late.filter((o) => o.id !== n.id), n].slice(-maxLate) };
}

function withPage(l: Found, page: Page): Found {
  const known = new Set(l.notices.map((n) => n.id));
  const late = new Map(l.late.map((n) => [n.id, n]));
  const more = (page.notices ?? [])
    .filter((n) => !known.has(n.id))
    .map((n) => {
      const changed = late.get(n.id);
      return changed && compareTimes(changed.state_at, n.state_at) > 0 ? changed : n;
    })
    .filter((n) => fits(n, l.filter));
  const all: Found = { ...l, notices: [...l.notices, ...more], next: page.next ?? "", loaded: true, late: [] };
  const there = new Set(more.map((n) => n.id));
  return l.late.filter((n) => !there.has(n.id)).reduce(withNotice, all);
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
