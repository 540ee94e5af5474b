import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeWire } from "../test/wire";
import { Live } from "./live";
import { sessionsRoom } from "./sessions";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const session = (id: string, state = "idle") => ({
  meta: { id, created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z" }, state, inputs: 0, notices: 0, running: true,
});

async function setup() {
  const wires: FakeWire[] = [];
  const live = new Live(
    async () => {
      const w = new FakeWire();
      wires.push(w);
      return w;
    },
    { random: () => 0, frame: (run) => setTimeout(run, 16) },
  );
  live.socket.start();
  await vi.advanceTimersByTimeAsync(0);
  const wire = (): FakeWire => wires.at(-1) as FakeWire;
  wire().open();
  return { live, wires, wire };
}

const ids = (live: Live): string[] => live.view("sessions", sessionsRoom).state.map((s) => s.meta.id);

test("a topic is subscribed once for all who hold it, and let go some time after the last", async () => {
  const { live, wire } = await setup();
  const a = live.hold("sessions", sessionsRoom, () => undefined);
  const b = live.hold("sessions", sessionsRoom, () => undefined);
  expect(wire().sent.filter((m) => m["action"] === "subscribe")).toHaveLength(1);
  wire().answer("subscribe", { sessions: [session("a")] });
  await vi.advanceTimersByTimeAsync(0);
  expect(ids(live)).toEqual(["a"]);
  a();
  b();
  await vi.advanceTimersByTimeAsync(4_000);
  const again = live.hold("sessions", sessionsRoom, () => undefined);
  expect(ids(live)).toEqual(["a"]);
  again();
  await vi.advanceTimersByTimeAsync(5_001);
  expect(wire().sent.filter((m) => m["action"] === "unsubscribe")).toHaveLength(1);
});

test("pushes of one frame are shown together", async () => {
  const { live, wire } = await setup();
  let shown = 0;
  live.hold("sessions", sessionsRoom, () => shown++);
  wire().answer("subscribe", { sessions: [] });
  await vi.advanceTimersByTimeAsync(0);
  shown = 0;
  for (let i = 0; i < 50; i++) wire().say({ topic: "sessions", action: "sessions.changed", data: { session: session("s" + i) } });
  expect(shown).toBe(0);
  await vi.advanceTimersByTimeAsync(16);
  expect(shown).toBe(1);
  expect(ids(live)).toHaveLength(50);
});

// a gap, and a new connection, are mended by a snapshot.
test("a gap asks for a snapshot, and so does a new connection", async () => {
  const { live, wires, wire } = await setup();
  live.hold("sessions", sessionsRoom, () => undefined);
  wire().answer("subscribe", { sessions: [session("a")] });
  await vi.advanceTimersByTimeAsync(0);
  wire().say({ topic: "sessions", action: "gap" });
  wire().say({ topic: "sessions", action: "sessions.removed", data: { id: "b" } });
  await vi.advanceTimersByTimeAsync(100);
  wire().answer("subscribe", { sessions: [session("a"), session("b")] });
  await vi.advanceTimersByTimeAsync(0);
  expect(ids(live)).toEqual(["a"]);

  wire().close();
  expect(live.view("sessions", sessionsRoom).phase).toBe("stale");
  expect(ids(live)).toEqual(["a"]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(wires).toHaveLength(2);
  wire().open();
  wire().answer("subscribe", { sessions: [session("c")] });
  await vi.advanceTimersByTimeAsync(0);
  expect(ids(live)).toEqual(["c"]);
  expect(live.view("sessions", sessionsRoom).phase).toBe("live");
});

test("pushes that overtake the snapshot are applied behind it", async () => {
  const { live, wire } = await setup();
  live.hold("sessions", sessionsRoom, () => undefined);
  wire().say({ topic: "sessions", action: "sessions.changed", data: { session: session("late") } });
  wire().answer("subscribe", { sessions: [session("a")] });
  await vi.advanceTimersByTimeAsync(0);
  expect(ids(live).sort()).toEqual(["a", "late"]);
});

test("a refusal is told, and can be tried again", async () => {
  const { live, wire } = await setup();
  live.hold("sessions", sessionsRoom, () => undefined);
  wire().refuse("subscribe", "forbidden", "no");
  await vi.advanceTimersByTimeAsync(0);
  expect(live.view("sessions", sessionsRoom)).toMatchObject({ phase: "failed", code: "forbidden", error: "no" });
  live.retry("sessions");
  wire().answer("subscribe", { sessions: [session("a")] });
  await vi.advanceTimersByTimeAsync(0);
  expect(ids(live)).toEqual(["a"]);
});
