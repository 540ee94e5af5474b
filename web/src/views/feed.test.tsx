// @vitest-environment jsdom
import "../test/setup";
import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../live/api";
import type { PageInfo } from "../live/wire";
import { PageContext } from "../page";
import { connected } from "../test/page";
import { FeedView } from "./FeedView";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

// A daemon whose answers the test gives, one for each time that the feed is asked for.
function daemon(all: boolean) {
  const { page, becomes } = connected("live");
  const info: PageInfo = { principal: { name: "x", all } };
  const topics = ["a"];
  const asked: string[] = []; // where each request begins
  const streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  let refuses = false;
  vi.spyOn(page.api, "ask").mockImplementation(() => Promise.resolve({ topics: topics.map((name) => ({ name, count: 1 })) }) as never);
  vi.spyOn(page.api, "request").mockImplementation((_method, _path, _body, o) => {
    asked.push(o?.headers?.["Last-Event-ID"] ?? "");
    if (refuses) return Promise.reject(new ApiError(401, "no"));
    return Promise.resolve(new Response(new ReadableStream({ start: (c) => void streams.push(c) })));
  });
  return {
    shown: { ...page, info }, asked, topics, becomes,
    publish: (id: string) => settled(() => streams.at(-1)?.enqueue(new TextEncoder().encode(`id: e-${id}\nevent: x\ndata: {"topic":"a","type":"x","data":${id}}\n\n`))),
    breaks: () => settled(() => streams.at(-1)?.close()),
    refuse: (r: boolean) => (refuses = r),
  };
}

// Does something, and lets what waits for no clock come of it.
async function settled(f: () => void): Promise<void> {
  await act(async () => {
    f();
    await vi.advanceTimersByTimeAsync(0);
  });
}

const press = (name: string) => settled(() => screen.getByRole("button", { name }).click());
const passes = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));

async function show(d: ReturnType<typeof daemon>): Promise<void> {
  await settled(() => void render(<PageContext value={d.shown}><FeedView /></PageContext>));
  expect(d.asked).toEqual([""]);
}

test("what has come when the feed is paused is shown, and what comes meanwhile is asked for", async () => {
  const d = daemon(true);
  await show(d);
  await d.publish("1"); // and before it is drawn
  await press("Pause");
  expect(screen.getByText("1 shown")).toBeTruthy();
  await press("Go on");
  expect(d.asked).toEqual(["", "e-1"]);
});

test("a feed that was refused goes on from where it was", async () => {
  const d = daemon(true);
  await show(d);
  await d.publish("1");
  d.refuse(true);
  await d.breaks();
  await passes(60_000);
  expect(screen.getByRole("alert").textContent).toMatch(/not followed any more/);
  d.refuse(false);
  await press("Try again");
  expect(d.asked).toEqual(["", "e-1", "e-1"]);
});

test("a topic that is new goes on with the others from where they were", async () => {
  const d = daemon(false);
  await show(d);
  await d.publish("1");
  d.topics.push("b");
  d.becomes("reconnecting");
  await settled(() => d.becomes("live"));
  expect(d.asked).toEqual(["", "e-1"]);
  await passes(1_000);
  expect(screen.getByText("1 shown")).toBeTruthy();
});

test("another topic begins with nothing of the one before", async () => {
  const d = daemon(true);
  await show(d);
  await d.publish("1");
  await settled(() => {
    const select = screen.getByLabelText("Topic") as HTMLSelectElement;
    select.value = "a";
    select.dispatchEvent(new Event("change", { bubbles: true }));
  });
  await passes(1_000);
  expect(d.asked).toEqual(["", ""]);
  expect(screen.queryByText(/shown/)).toBeNull();
});
