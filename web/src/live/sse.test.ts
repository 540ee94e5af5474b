import { expect, test } from "vitest";
import { toItem } from "./feed";
import { SseParser } from "./sse";

const stream = ": ok\n\nretry: 2000\n\nid: e-16\n\nid: e-17\nevent: build.done\ndata: {\"id\":17,\ndata: \"topic\":\"b\"}\n\nid: e-40\r\nevent: gap\r\ndata: {\"dropped\":23,\"reason\":\"slow\"}\r\n\r\n: heartbeat\n\n";

test("events are found however the stream is cut", () => {
  for (let size = 1; size <= stream.length; size++) {
    const p = new SseParser();
    const events = [];
    for (let i = 0; i < stream.length; i += size) events.push(...p.feed(stream.slice(i, i + size)));
    expect(events, `pieces of ${size}`).toEqual([
      { id: "e-17", type: "build.done", data: '{"id":17,\n"topic":"b"}' },
      { id: "e-40", type: "gap", data: '{"dropped":23,"reason":"slow"}' },
    ]);
    expect(p.lastId).toBe("e-40");
    expect(p.retry).toBe(2000);
  }
});

test("an id moves on only at the end of its frame", () => {
  const p = new SseParser();
  p.feed("id: a-1\n\nid: a-2\ndata: x");
  expect(p.lastId).toBe("a-1");
});

test("what never ends is refused", () => {
  const p = new SseParser();
  expect(() => p.feed("data: " + "x".repeat(2 << 20))).toThrow(/too long/);
});

test("gaps say in words what is missing", () => {
  expect(toItem({ id: "e-40", type: "gap", data: '{"dropped":23,"reason":"slow"}' })?.text).toBe("23 events are missing here: this page was too far behind.");
  expect(toItem({ id: "e-40", type: "gap", data: '{"reason":"later"}' })?.text).toContain("later");
  expect(toItem({ id: "x", type: "message", data: "{" })).toBeNull();
});
