import { expect, test } from "vitest";
import type { Attempt, Report } from "./report";
import { currentAttempt } from "./report";
import type { SessionState } from "./session";
import { maxEntries, sessionRoom } from "./session";
import type { Entry, Update } from "./wire";

const at = "2026-11-30T06:00:00Z";
const room = sessionRoom("one");

const info = (id: string, extra: object = {}) => ({ meta: { id, created_at: at, updated_at: at }, state: "idle", inputs: 0, notices: 0, running: true, ...extra });
const entry = (seq: number, kind: string, extra: Partial<Entry> = {}): Entry => ({ seq, time: at, kind, ...extra });
const update = (event: string, extra: Partial<Update> = {}) => ({ action: "session.update", data: { time: at, event, ...extra } });
const entries = (...list: Entry[]) => ({ action: "session.entries", data: { entries: list } });

function report(session: string, attempt: string, updated: string): Report {
  const a: Attempt = { session_id: session, execution_id: "x", attachment_attempt_id: attempt, started_at: at, updated_at: updated, servers: [] };
  return { schema_version: 1, current_attachment_attempt_id: attempt, attempts: [a] };
}

function start(extra: object = {}): SessionState {
  return room.snapshot(room.initial, { session: info("one"), history: null, entries: [], first: true, live: {}, ...extra });
}

const attempt = (s: SessionState): string | undefined => currentAttempt(s.report)?.attachment_attempt_id;
const mcp = (session: string, history: Report) => ({ action: "session.mcp_status_updated", data: { task_id: "", session_id: session, history, timestamp: at } });

test("what is said streams, and moves into the transcript without a double", () => {
  let s = room.pushes(start(), [update("run.started", { run: "r" }), update("text", { run: "r", text: "Hello " }), update("text", { run: "r", text: "world. Now" })]);
  expect(s.now.text).toBe("Hello world. Now");
  s = room.pushes(s, [entries(entry(1, "assistant", { run: "r", text: "Hello world." }))]);
  expect(s.now.text).toBe(" Now");
  expect(s.entries.map((e) => e.text)).toEqual(["Hello world."]);
  s = room.pushes(s, [update("run.ended", { run: "r" })]);
  expect(s.now.text).toBe("");
});

test("what goes on has a time from its first moment, a reload or not, and none when it is over", () => {
  const later = "2026-11-30T06:01:00Z";
  const starting = info("one", { state: "starting", since: at });
  let s = start({ session: starting });
  expect(s.since).toBe(at);
  s = room.pushes(start(), [{ action: "session.changed", data: { session: starting } }]);
  expect(s.since).toBe(at);
  s = room.pushes(s, [update("agent.starting", { time: later })]);
  expect(s.since).toBe(at);
  s = room.pushes(s, [update("run.started", { run: "r", time: later })]);
  expect(s.since).toBe(later);
  s = room.pushes(s, [{ action: "session.changed", data: { session: info("one") } }]);
  expect(s.since).toBe("");
});

test("where the daemon says what is left of a message, that counts", () => {
  let s = room.pushes(start(), [update("text", { run: "r", text: "abc" })]);
  s = room.pushes(s, [{ action: "session.entries", data: { entries: [entry(1, "assistant", { run: "r", text: "not a prefix" })], live: { run: "r", text: "c" } } }]);
  expect(s.now.text).toBe("c");
});

test("the text of another run is another message", () => {
  const s = room.pushes(start(), [update("text", { run: "r", text: "old" }), update("text", { run: "q", text: "new" })]);
  expect(s.now).toMatchObject({ run: "q", text: "new" });
});

test("tool calls are followed by id until the transcript has them", () => {
  let s = room.pushes(start(), [
    update("tool", { run: "r", id: "t1", text: "read", status: "pending", input: { a: 1 } }),
    update("tool", { run: "r", id: "t1", status: "in_progress" }),
    update("tool", { run: "r", id: "t2", text: "write" }),
  ]);
  expect(s.now.tools).toMatchObject([{ id: "t1", title: "read", status: "in_progress", input: { a: 1 } }, { id: "t2" }]);
  s = room.pushes(s, [entries(entry(1, "tool", { run: "r", id: "t1" }))]);
  expect(s.now.tools.map((t) => t.id)).toEqual(["t2"]);
});

test("questions come and go", () => {
  let s = room.pushes(start(), [update("permission.asked", { id: "ask_1", name: "t1", text: "rm", options: [{ id: "y", kind: "allow_once" }] })]);
  expect(s.asked).toMatchObject([{ id: "ask_1", call: { id: "t1", title: "rm" } }]);
  s = room.pushes(s, [update("permission.answered", { id: "ask_1", kind: "allow_once" })]);
  expect(s.asked).toEqual([]);
});

test("entries come once, in order, and are bounded", () => {
  const many = Array.from({ length: maxEntries }, (_, i) => entry(i + 1, "user"));
  let s = room.pushes(start(), [entries(...many)]);
  s = room.pushes(s, [entries(entry(maxEntries, "user"), entry(maxEntries + 1, "user"))]);
  expect(s.entries).toHaveLength(maxEntries);
  expect(s.entries[0]?.seq).toBe(2);
  expect(s.first).toBe(false);
});

test("older entries go before, and a snapshot that follows on keeps them", () => {
  let s = start({ entries: [entry(501, "user"), entry(502, "user")], first: false });
  s = room.pushes(s, [{ action: "session.older", data: { entries: [entry(499, "user"), entry(500, "user")] } }]);
  expect(s.entries.map((e) => e.seq)).toEqual([499, 500, 501, 502]);
  s = room.snapshot(s, { session: info("one"), entries: [entry(502, "user"), entry(503, "user")], first: false });
  expect(s.entries.map((e) => e.seq)).toEqual([499, 500, 501, 502, 503]);
  s = room.snapshot(s, { session: info("one"), entries: [entry(900, "user")], first: false });
  expect(s.entries.map((e) => e.seq)).toEqual([900]);
});

// a reload hydrates without a live event; the newer wins by updated_at, equal
// keeps live.
test("of a live and a hydrated report the newer counts", () => {
  let s = start({ history: report("one", "stored", "2026-11-30T06:00:01.000000001Z") });
  expect(attempt(s)).toBe("stored");
  s = room.pushes(s, [mcp("one", report("one", "live", "2026-11-30T06:00:01.000000001Z"))]);
  expect(attempt(s)).toBe("live");
  s = room.pushes(s, [mcp("one", report("one", "older", "2026-11-30T06:00:01Z"))]);
  expect(attempt(s)).toBe("live");
  s = room.snapshot(s, { session: info("one"), history: report("one", "equal", "2026-11-30T06:00:01.000000001Z") });
  expect(attempt(s)).toBe("live");
  s = room.snapshot(s, { session: info("one"), history: report("one", "newer", "2026-11-30T06:00:01.000000002Z") });
  expect(attempt(s)).toBe("newer");
});

// nothing of one session is ever shown at another.
test("a report of another session is refused, however it comes", () => {
  let s = start({ history: report("two", "foreign", at) });
  expect(s.report).toBeNull();
  s = room.pushes(s, [mcp("two", report("two", "foreign", at)), mcp("one", report("two", "mixed", at)), mcp("two", report("one", "misaddressed", at))]);
  expect(s.report).toBeNull();
  s = room.pushes(s, [{ action: "session.changed", data: { session: info("two") } }]);
  expect(s.info?.meta.id).toBe("one");
  expect(sessionRoom("two").initial.report).toBeNull();
});

test("unknown pushes and events change nothing", () => {
  const s = start();
  expect(room.pushes(s, [{ action: "session.future", data: {} }, update("future.event")])).toBe(s);
});

test("what came before is not changed", () => {
  const s = start({ entries: [entry(1, "user")] });
  const frozen = Object.freeze(s.entries);
  room.pushes(s, [entries(entry(2, "user"))]);
  expect(frozen).toHaveLength(1);
});
