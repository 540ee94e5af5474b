import type { Report } from "./report";
import { fresher, ofSession } from "./report";
import type { Room } from "./room";
import type { Entry, InboxStatus, Maybe, PlanEntry, Question, SessionInfo, ToolCall, Update, WatchStatus } from "./wire";

/** What the agent is saying and doing now, before the transcript has it. */
export interface Now {
  readonly run: string;
  readonly text: string;
  readonly thought: string;
  readonly tools: readonly ToolCall[];
  readonly plan: readonly PlanEntry[];
}

export interface SessionState {
  readonly info: SessionInfo | null;
  readonly report: Report | null;
  readonly entries: readonly Entry[];
  /** There is nothing older than the first entry. */
  readonly first: boolean;
  readonly now: Now;
  readonly asked: readonly Question[];
  /** What was said last of a start, in words. */
  readonly doing: string;
  /** Since when what goes on is under way. */
  readonly since: string;
  readonly contextUsed?: number;
  readonly contextSize?: number;
}

/** Entries that a page keeps; older ones are loaded again when somebody scrolls up. */
export const maxEntries = 20_000;
const maxLiveText = 256 * 1024;
const maxLiveTools = 512;

const silent: Now = { run: "", text: "", thought: "", tools: [], plan: [] };

export const emptySession: SessionState = {
  info: null, report: null, entries: [], first: true, now: silent, asked: [], doing: "", since: "",
};

interface Snapshot {
  session?: SessionInfo;
  history?: Maybe<Report>;
  entries?: Maybe<Entry[]>;
  first?: boolean;
  live?: Maybe<{ run?: string; text?: string; thought?: string; tools?: Maybe<ToolCall[]>; plan?: Maybe<PlanEntry[]> }>;
}

const rooms = new Map<string, Room<SessionState>>();
const maxRooms = 256;

/** The room of one session. It takes nothing that is of another. */
export function sessionRoom(id: string): Room<SessionState> {
  let room = rooms.get(id);
  if (!room) {
    room = {
      initial: emptySession,
      snapshot: (old, data) => snapshot(id, old, data as Snapshot),
      pushes: (old, pushes) => pushes.reduce<Draft>((d, p) => push(id, d, p.action, p.data), new Draft(old)).state(),
    };
    if (rooms.size >= maxRooms) rooms.delete(rooms.keys().next().value ?? "");
    rooms.set(id, room);
  }
  return room;
}

function snapshot(id: string, old: SessionState, s: Snapshot): SessionState {
  const live = s.live;
  const read = ofSession(s.history, id) ? (s.history ?? null) : null;
  const entries = joined(old, s.entries ?? [], s.first ?? true);
  return {
    info: s.session ?? null,
    report: fresher(ofSession(old.report, id) ? old.report : null, read),
    ...entries,
    now: { run: live?.run ?? "", text: live?.text ?? "", thought: live?.thought ?? "", tools: live?.tools ?? [], plan: live?.plan ?? [] },
    asked: s.session?.asked ?? [],
    doing: "",
    since: s.session?.since ?? "",
    contextUsed: old.contextUsed,
    contextSize: old.contextSize,
  };
}

/**
 * Joins what a page had with a snapshot. Numbers have no holes: where the snapshot
 * follows on, nothing that somebody has scrolled to is lost.
 */
function joined(old: SessionState, entries: readonly Entry[], first: boolean): { entries: readonly Entry[]; first: boolean } {
  const start = entries[0]?.seq;
  const last = old.entries.at(-1)?.seq;
  if (start === undefined || last === undefined || start > last + 1 || (entries.at(-1)?.seq ?? 0) < last) return { entries, first };
  const before = old.entries.filter((e) => e.seq < start);
  return before.length ? { entries: [...before, ...entries], first: old.first } : { entries, first };
}

/** A state under change: lists are copied once for a batch of pushes. */
class Draft {
  s: SessionState;
  #entries: Entry[] | null = null;

  constructor(s: SessionState) {
    this.s = s;
  }

  set(change: Partial<SessionState>): void {
    this.s = { ...this.s, ...change };
  }

  now(change: Partial<Now>): void {
    this.set({ now: { ...this.s.now, ...change } });
  }

  append(entries: readonly Entry[]): void {
    const list = (this.#entries ??= [...this.s.entries]);
    for (const e of entries) {
      const last = list.at(-1)?.seq ?? 0;
      if (e.seq > last) list.push(e);
    }
    if (list.length > maxEntries) {
      list.splice(0, list.length - maxEntries);
      this.set({ first: false });
    }
  }

  /** Puts older entries, which the page itself has asked for, before what is there. */
  older(older: readonly Entry[]): void {
    const list = this.#entries ?? this.s.entries;
    const start = list[0]?.seq ?? Infinity;
    const before = older.filter((e) => e.seq < start);
    this.#entries = [...before, ...list];
    this.set({ first: before.length === 0 || (before[0]?.seq ?? 0) <= 1 });
  }

  state(): SessionState {
    return this.#entries ? { ...this.s, entries: this.#entries } : this.s;
  }
}

function push(id: string, d: Draft, action: string, data: unknown): Draft {
  switch (action) {
    case "session.update":
      update(d, data as Update);
      break;
    case "session.entries": {
      const e = data as { entries?: Maybe<Entry[]>; live?: Maybe<{ run?: string; text?: string }> };
      entries(d, e.entries ?? []);
      // What is left of the message is said exactly where the daemon says it.
      if (e.live && (e.live.run ?? "") === d.s.now.run) d.now({ text: e.live.text ?? "" });
      break;
    }
    case "session.older":
      d.older((data as { entries?: Maybe<Entry[]> }).entries ?? []);
      break;
    case "session.changed": {
      const info = (data as { session?: SessionInfo }).session;
      if (info?.meta?.id === id) changed(d, info);
      break;
    }
    case "session.watches":
      if (d.s.info) d.set({ info: { ...d.s.info, watches: (data as { watches?: Maybe<WatchStatus[]> }).watches ?? [] } });
      break;
    case "session.inbox":
      if (d.s.info) d.set({ info: { ...d.s.info, inbox: (data as { inbox?: InboxStatus }).inbox } });
      break;
    case "session.mcp_status_updated": {
      const { session_id: of, history } = data as { session_id?: string; history?: Maybe<Report> };
      // What comes live counts over what is held unless that is strictly newer.
      if (of === id && history && ofSession(history, id)) {
        d.set({ report: fresher(history, d.s.report) });
      }
      break;
    }
  }
  return d;
}

function changed(d: Draft, info: SessionInfo): void {
  const old = d.s.info;
  const merged: SessionInfo = { ...info, watches: info.watches ?? old?.watches, inbox: info.inbox ?? old?.inbox };
  const change: { -readonly [K in keyof SessionState]?: SessionState[K] } = { info: merged, since: info.since ?? "" };
  if (info.asked) change.asked = info.asked;
  else if (info.questions === undefined || info.questions === 0) change.asked = [];
  if (!info.run && info.state !== "starting") change.doing = "";
  d.set(change);
}

function entries(d: Draft, list: readonly Entry[]): void {
  d.append(list);
  for (const e of list) {
    const now = d.s.now;
    switch (e.kind) {
      case "assistant":
        if ((e.run ?? "") === now.run && e.text && now.text.startsWith(e.text)) d.now({ text: now.text.slice(e.text.length) });
        break;
      case "thought":
        if ((e.run ?? "") === now.run && e.text && now.thought.startsWith(e.text)) d.now({ thought: now.thought.slice(e.text.length) });
        break;
      case "tool":
        if (now.tools.some((t) => t.id === e.id)) d.now({ tools: now.tools.filter((t) => t.id !== e.id) });
        break;
      case "run_end":
        if ((e.run ?? "") === now.run) d.set({ now: silent });
        break;
    }
  }
}

function update(d: Draft, u: Update): void {
  const run = u.run ?? "";
  switch (u.event) {
    case "run.started":
      d.set({ now: { ...silent, run }, since: u.time, doing: "" });
      return;
    case "run.ended":
      // The entries of the run have come before.
      d.set({ doing: "", since: "", now: d.s.now.run === run ? silent : d.s.now });
      return;
    case "text":
      of(d, run);
      d.now({ text: (d.s.now.text + (u.text ?? "")).slice(-maxLiveText), thought: "" });
      return;
    case "thought":
      of(d, run);
      d.now({ thought: (d.s.now.thought + (u.text ?? "")).slice(-maxLiveText) });
      return;
    case "tool":
      of(d, run);
      d.now({ tools: withTool(d.s.now.tools, u), thought: "" });
      return;
    case "plan":
      of(d, run);
      d.now({ plan: u.plan ?? [] });
      return;
    case "usage":
      d.set({ contextUsed: u.usage?.context_used, contextSize: u.usage?.context_size });
      return;
    case "agent.starting":
      d.set({ doing: u.text || "starting the agent", since: d.s.since || u.time });
      return;
    case "agent.started":
      d.set({ doing: "" });
      return;
    case "permission.asked":
      if (!u.id || d.s.asked.some((q) => q.id === u.id)) return;
      d.set({ asked: [...d.s.asked, { id: u.id, run, call: { id: u.name ?? "", title: u.text, kind: u.kind, input: u.input }, options: u.options ?? [] }] });
      return;
    case "permission.answered":
      d.set({ asked: d.s.asked.filter((q) => q.id !== u.id) });
      return;
    case "session.reset":
      d.set({ now: silent, doing: "", since: "" });
      return;
  }
}

// A live part is of one run; what another one says begins anew.
function of(d: Draft, run: string): void {
  if (d.s.now.run !== run) d.set({ now: { ...silent, run } });
}

function withTool(tools: readonly ToolCall[], u: Update): readonly ToolCall[] {
  const id = u.id ?? "";
  const old = tools.find((t) => t.id === id);
  const call: ToolCall = {
    id,
    title: u.text || old?.title,
    kind: u.kind || old?.kind,
    status: u.status || old?.status,
    input: u.input ?? old?.input,
    output: u.output ?? old?.output,
  };
  if (old) return tools.map((t) => (t.id === id ? call : t));
  return [...tools, call].slice(-maxLiveTools);
}
