import { expect, test } from "vitest";
import { inboxRoom, noticeStates, noticeWords } from "./inbox";
import { signalsRoom } from "./signals";
import { sessionsRoom } from "./sessions";
import type { TerminalState } from "./terminal";
import { encode, maxKept, terminalRoom } from "./terminal";
import { splitCommand } from "./words";

const second = (n: number) => `2026-11-30T06:00:${String(n).padStart(2, "0")}Z`;
const notice = (n: number, state: string, at = n) => ({ id: String(n), agent: "a", source: "watch", text: "t", created_at: second(n), state, state_at: second(at), offers: 0 });

const all = { agent: "", state: "", source: "" };
const ids = (l: { notices: readonly { id: string; state: string }[] } | null) => l?.notices.map((n) => n.id + n.state);
const page = (filter: object, after: string, notices: unknown[], next = "") => ({ action: "inbox.page", data: { filter, after, page: { notices, next } } });
const told = (n: object) => ({ action: "inbox.notice", data: { notice: n } });

test("notices are changed in their place, new ones come first, and one that is not loaded comes with its page", () => {
  let s = inboxRoom.snapshot(inboxRoom.initial, { notices: [notice(5, "persisted"), notice(3, "persisted")], next: "3", agents: null });
  s = inboxRoom.pushes(s, [
    told(notice(7, "persisted")),
    told(notice(5, "seen", 8)),
    told(notice(4, "seen")), // somewhere between
    told(notice(1, "acked", 9)), // below the end
    { action: "inbox.agent", data: { status: { agent: "a", pending: 1 } } },
    { action: "inbox.agent", data: { status: { agent: "a", pending: 2 } } },
  ]);
  expect(ids(s.all)).toEqual(["7persisted", "5seen", "4seen", "3persisted"]);
  // The page was read before the change that was told.
  s = inboxRoom.pushes(s, [page(all, "3", [notice(3, "persisted"), notice(2, "seen"), notice(1, "persisted")])]);
  expect(ids(s.all)).toEqual(["7persisted", "5seen", "4seen", "3persisted", "2seen", "1acked"]);
  expect(s.agents).toMatchObject([{ agent: "a", pending: 2 }]);
  expect(s.all.next).toBe("");
});

test("a page that was asked for before the connection was lost leaves no hole", () => {
  let s = inboxRoom.snapshot(inboxRoom.initial, { notices: [notice(9, "seen"), notice(8, "seen")], next: "8", agents: null });
  s = inboxRoom.pushes(s, [page(all, "8", [notice(7, "seen"), notice(6, "seen")], "6")]);
  s = inboxRoom.snapshot(s, { notices: [notice(9, "seen"), notice(8, "seen")], next: "8", agents: null });
  s = inboxRoom.pushes(s, [page(all, "6", [notice(5, "seen")])]);
  expect(ids(s.all)).toEqual(["9seen", "8seen"]);
  expect(s.all.next).toBe("8");
  // What was missed by what a filter found comes with its first page, and only then others.
  const seen = { agent: "", state: "seen", source: "" };
  s = inboxRoom.pushes(s, [{ action: "inbox.find", data: { filter: seen } }, page(seen, "", [notice(9, "seen")], "9")]);
  s = inboxRoom.snapshot(s, { notices: [notice(10, "seen"), notice(9, "seen")], next: "9", agents: null });
  s = inboxRoom.pushes(s, [page(seen, "9", [notice(8, "seen")])]);
  expect(s.found?.loaded).toBe(false);
  s = inboxRoom.pushes(s, [page(seen, "", [notice(10, "seen"), notice(9, "seen")], "9")]);
  expect(ids(s.found)).toEqual(["10seen", "9seen"]);
});

test("what a filter finds is the daemon's, and follows what is told", () => {
  const waiting = { agent: "", state: "persisted", source: "" };
  let s = inboxRoom.snapshot(inboxRoom.initial, { notices: [notice(9, "seen")], next: "9", agents: null });
  s = inboxRoom.pushes(s, [{ action: "inbox.find", data: { filter: waiting } }]);
  expect(s.found).toMatchObject({ notices: [], loaded: false });
  // While the page is on its way one leaves the state, and one comes.
  s = inboxRoom.pushes(s, [told(notice(4, "seen", 20)), told(notice(10, "persisted"))]);
  s = inboxRoom.pushes(s, [page({ ...waiting, state: "dead" }, "", [notice(1, "dead")]), page(waiting, "", [notice(5, "persisted"), notice(4, "persisted")], "4")]);
  expect(ids(s.found)).toEqual(["10persisted", "5persisted"]);
  s = inboxRoom.pushes(s, [told(notice(5, "acked", 21)), told(notice(11, "seen")), told(notice(12, "persisted"))]);
  expect(ids(s.found)).toEqual(["12persisted", "10persisted"]);
  s = inboxRoom.pushes(s, [page(waiting, "4", [notice(2, "persisted")])]);
  expect(ids(s.found)).toEqual(["12persisted", "10persisted", "2persisted"]);
  // After a reconnect it is shown, and asked for anew.
  s = inboxRoom.snapshot(s, { notices: [notice(12, "persisted")], next: "", agents: null });
  expect(s.found).toMatchObject({ loaded: false });
  s = inboxRoom.pushes(s, [page(waiting, "", [notice(12, "persisted")])]);
  expect(ids(s.found)).toEqual(["12persisted"]);
  expect(inboxRoom.pushes(s, [{ action: "inbox.find", data: { filter: all } }]).found).toBeNull();
});

test("every state has words", () => {
  expect(noticeStates).toHaveLength(8);
  for (const s of noticeStates) expect(noticeWords(s).words).not.toBe("");
  expect(noticeWords("novel").label).toBe("novel");
});

test("signals are in the order of their numbers", () => {
  const signal = (n: number) => ({ id: "s" + n, sequence: n, time: "", sender: "a", recipient: "b", type: "inform", content: "" });
  const s = signalsRoom.pushes(signalsRoom.snapshot(signalsRoom.initial, { signals: [signal(3), signal(1)] }), [
    { action: "signals.signal", data: { signal: signal(2) } },
    { action: "signals.note", data: { entry: { key: "k", value: "v", updated_by: "a", updated_at: "" } } },
  ]);
  expect(s.signals.map((x) => x.sequence)).toEqual([3, 2, 1]);
  expect(s.whiteboard).toHaveLength(1);
});

test("a session that was removed is gone", () => {
  const meta = { id: "a", created_at: "", updated_at: "" };
  const s = sessionsRoom.snapshot([], { sessions: [{ meta, state: "idle", inputs: 0, notices: 0, running: true }] });
  expect(sessionsRoom.pushes(s, [{ action: "sessions.removed", data: { id: "a" } }])).toEqual([]);
  expect(sessionsRoom.pushes(s, [{ action: "sessions.removed", data: { id: "b" } }])).toBe(s);
});

const output = (offset: number, text: string, extra: object = {}) => ({ action: "terminal.output", data: { offset, data: encode(new TextEncoder().encode(text)), ...extra } });
const drawn = (s: TerminalState): string => s.pieces.map((p) => new TextDecoder().decode(p.modes) + new TextDecoder().decode(p.bytes)).join("");

test("a terminal that goes on draws no byte twice", () => {
  let s = terminalRoom.snapshot(terminalRoom.initial, { offset: 0, running: true, cols: 80, rows: 24 });
  s = terminalRoom.pushes(s, [output(0, "abc"), output(3, "def")]);
  s = terminalRoom.snapshot(s, { offset: 6, running: true });
  s = terminalRoom.pushes(s, [output(4, "efgh"), output(2, "cd")]);
  expect(drawn(s)).toBe("abcdefgh");
  expect(s).toMatchObject({ offset: 8, screen: 0, lost: 0 });
  s = terminalRoom.pushes(s, [{ action: "terminal.exit", data: {} }]);
  expect(s).toMatchObject({ running: false, ended: "The agent has ended." });
});

test("after a loss, or a new start, the screen begins anew", () => {
  let s = terminalRoom.pushes(terminalRoom.initial, [output(0, "abc")]);
  s = terminalRoom.pushes(s, [output(10, "xyz", { lost: 7, modes: btoa("M") })]);
  expect(drawn(s)).toBe("Mxyz");
  expect(s).toMatchObject({ offset: 13, screen: 1, lost: 7 });
  s = terminalRoom.snapshot(s, { offset: 2, running: true });
  s = terminalRoom.pushes(s, [output(2, "new")]);
  expect(drawn(s)).toBe("new");
  expect(s).toMatchObject({ offset: 5, screen: 2 });
});

test("a terminal keeps a bounded piece of what it showed", () => {
  let s = terminalRoom.initial;
  for (let i = 0; i < 30; i++) s = terminalRoom.pushes(s, [output(s.offset, "x".repeat(100_000))]);
  const size = s.pieces.reduce((n, p) => n + p.bytes.length, 0);
  expect(size).toBeLessThanOrEqual(maxKept);
  expect(size).toBeGreaterThan(maxKept / 2);
});

test("commands are split at spaces outside of quotes", () => {
  expect(splitCommand(`agent --x 'a b' "c \\" d" e\\ f ''`)).toEqual(["agent", "--x", "a b", 'c " d', "e f", ""]);
  expect(splitCommand("agent 'open")).toBeNull();
  expect(splitCommand("  ")).toEqual([]);
});
