import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeWire } from "../test/wire";
import type { Status } from "./socket";
import { LiveError, pauseBefore, Socket } from "./socket";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function setup() {
  const wires: FakeWire[] = [];
  const statuses: Status[] = [];
  const pushes: unknown[] = [];
  let fails = 0;
  const socket = new Socket({
    dial: async () => {
      if (fails > 0) {
        fails--;
        throw new Error("no way in");
      }
      const w = new FakeWire();
      wires.push(w);
      return w;
    },
    onPush: (p) => pushes.push(p),
    onStatus: (s) => statuses.push(s),
    random: () => 1,
  });
  return { socket, wires, statuses, pushes, fail: (n: number) => (fails = n) };
}

test("pauses double, are partly by chance, and end at 10 s", () => {
  expect([0, 1, 2, 10, 1000].map((n) => pauseBefore(n, () => 1))).toEqual([250, 500, 1000, 10_000, 10_000]);
  expect(pauseBefore(10, () => 0)).toBe(5_000);
});

test("a lost connection is made again, and what waits for an answer is told", async () => {
  const { socket, wires, statuses } = setup();
  socket.start();
  await vi.advanceTimersByTimeAsync(0);
  wires[0]?.open();
  const asked = socket.request("subscribe", { topic: "sessions" });
  wires[0]?.close();
  await expect(asked).rejects.toBeInstanceOf(LiveError);
  await vi.advanceTimersByTimeAsync(249);
  expect(wires).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(wires).toHaveLength(2);
  wires[1]?.open();
  expect(statuses).toEqual(["connecting", "live", "reconnecting", "live"]);
});

test("failures to dial are tried again with longer pauses; a hurry does not wait", async () => {
  const { socket, wires, fail } = setup();
  fail(3);
  socket.start();
  await vi.advanceTimersByTimeAsync(250 + 500);
  expect(wires).toHaveLength(0);
  socket.hurry();
  await vi.advanceTimersByTimeAsync(0);
  expect(wires).toHaveLength(1);
});

test("answers find their requests, whatever the order; errors carry their code", async () => {
  const { socket, wires, pushes } = setup();
  socket.start();
  await vi.advanceTimersByTimeAsync(0);
  const w = wires[0] as FakeWire;
  w.open();
  const one = socket.request("a");
  const two = socket.request("b");
  w.refuse("b", "forbidden", "not yours");
  w.say({ topic: "sessions", action: "sessions.removed", data: { id: "x" } });
  w.answer("a", { ok: true });
  expect(await one).toEqual({ ok: true });
  await expect(two).rejects.toMatchObject({ code: "forbidden", message: "not yours" });
  expect(pushes).toEqual([{ topic: "sessions", action: "sessions.removed", data: { id: "x" } }]);
});

test("a request without an answer ends", async () => {
  const { socket, wires } = setup();
  socket.start();
  await vi.advanceTimersByTimeAsync(0);
  wires[0]?.open();
  const asked = expect(socket.request("a", {}, 1000)).rejects.toMatchObject({ code: "timeout" });
  await vi.advanceTimersByTimeAsync(1000);
  await asked;
});

test("after a stop nothing is dialled, and a connection that comes late is closed", async () => {
  const { socket, wires } = setup();
  socket.start();
  socket.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(wires.every((w) => w.closed)).toBe(true);
  expect(wires.length).toBeLessThanOrEqual(1);
});

test("noise is not fatal", async () => {
  const { socket, wires, pushes } = setup();
  socket.start();
  await vi.advanceTimersByTimeAsync(0);
  const w = wires[0] as FakeWire;
  w.open();
  for (const data of ["", "null", "[]", "{", '{"id":99,"result":1}', new Uint8Array(2)]) w.onmessage?.({ data });
  expect(pushes).toEqual([]);
  expect(socket.status).toBe("live");
});
