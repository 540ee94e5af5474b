// @vitest-environment jsdom
import "../test/setup";
import { act, cleanup, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ReactNode } from "react";
import { afterEach, expect, test, vi } from "vitest";
import type { FeedItem } from "../live/feed";
import { Live } from "../live/live";
import type { View } from "../live/room";
import { emptySession } from "../live/session";
import type { SessionInfo } from "../live/wire";
import { PageContext } from "../page";
import { connected, page, tests } from "../test/page";
import { FakeWire } from "../test/wire";
import { Boundary } from "../ui/Boundary";
import { PhaseNote } from "../ui/PhaseNote";
import { Composer } from "./Composer";
import { FeedRows } from "./FeedRows";
import { InboxView } from "./InboxView";
import { McpServerRow } from "./McpServerRow";
import { StartWatch } from "./StartWatch";
import { WatchesView } from "./WatchesView";

afterEach(cleanup);

const at = "2026-11-30T06:00:00Z";
const notice = (id: string, state: string) => ({ id, agent: "a", source: "watch", title: id, text: "t", created_at: at, state, state_at: at, offers: 0 });
const session = (id: string, watching: number) => ({ meta: { id, created_at: at, updated_at: at }, state: "idle", inputs: 0, notices: 0, running: true, watching }) as SessionInfo;

test("a view that fails leaves the rest, and another one gets its chance", () => {
  const quiet = vi.spyOn(console, "error").mockImplementation(() => undefined);
  const { page: p } = connected("live");
  const Broken = (): never => {
    throw new Error("chunk is gone");
  };
  const shows = (of: string, child: ReactNode) => (
    <PageContext value={p}>
      <Boundary of={of}>{child}</Boundary>
    </PageContext>
  );
  const { rerender } = render(shows("a", <Broken />));
  expect(screen.getByText("chunk is gone")).toBeTruthy();
  rerender(shows("b", <p>well</p>));
  expect(screen.getByText("well")).toBeTruthy();
  quiet.mockRestore();
});

/** A view that fails with a message, on a page whose connection is in a state. */
function broken(state: Parameters<typeof connected>[0], message: string) {
  const { page: p, becomes } = connected(state);
  const reload = vi.fn();
  const Broken = (): never => {
    throw new Error(message);
  };
  render(
    <PageContext value={p}>
      <Boundary of="a" reload={reload}>
        <Broken />
      </Boundary>
    </PageContext>,
  );
  return { reload, becomes };
}

test("a view that cannot be loaded while the daemon is away says so, and loads itself once it is back", () => {
  const quiet = vi.spyOn(console, "error").mockImplementation(() => undefined);
  const { reload, becomes } = broken("live", "Failed to fetch dynamically imported module");
  // It failed before the connection was seen to be lost.
  expect(screen.getByText("Load the page again")).toBeTruthy();
  becomes("reconnecting");
  expect(screen.getByRole("status").textContent).toMatch(/cannot be now. It appears by itself/);
  expect(screen.queryByText("Load the page again"), "there is nothing to load it from").toBeNull();
  expect(reload).not.toHaveBeenCalled();
  becomes("live");
  expect(reload).toHaveBeenCalledTimes(1);
  quiet.mockRestore();
});

test("a view that fails before the page is connected does not load it again and again", () => {
  const quiet = vi.spyOn(console, "error").mockImplementation(() => undefined);
  const { reload, becomes } = broken("connecting", "it fails each time");
  expect(screen.getByText("it fails each time")).toBeTruthy();
  becomes("live");
  expect(reload).not.toHaveBeenCalled();
  act(() => screen.getByText("Load the page again").click());
  expect(reload).toHaveBeenCalledTimes(1);
  quiet.mockRestore();
});

test("what is awaited of a daemon that is away says so", () => {
  const { page: p, becomes } = connected("live");
  const view = { phase: "loading", state: [], code: "", error: "" } as View<unknown>;
  render(
    <PageContext value={p}>
      <PhaseNote view={view} topic="sessions" what="the sessions" />
    </PageContext>,
  );
  expect(screen.getByRole("status").textContent).toMatch(/Loading the sessions/);
  becomes("reconnecting");
  expect(screen.getByRole("status").textContent).toMatch(/The daemon is away. Once it is back, the sessions will be here/);
});

test("one endpoint is tested at a time", async () => {
  const test = vi.fn();
  render(
    <ul>
      {["board", "memo"].map((name) => (
        <McpServerRow key={name} tests={tests({ running: "memo", test })} server={{ name, status: "active" }} />
      ))}
    </ul>,
  );
  const board = screen.getByText("board").closest("li") as HTMLElement;
  expect((within(board).getByRole("button") as HTMLButtonElement).disabled).toBe(true);
  expect(board.textContent).toMatch(/memo is being tested/);
  await userEvent.click(within(board).getByRole("button"));
  expect(test).not.toHaveBeenCalled();
});

test("what is spoken holds nothing that changes by itself", () => {
  const result = { tested_at: at, succeeded: true, tool_count: 2 };
  const { container } = render(
    <>
      <McpServerRow tests={tests()} server={{ name: "board", status: "active", endpoint_test: result }} />
      <FeedRows items={[{ kind: "event", key: "1", id: "1", topic: "t", type: "x", time: at, text: "{}", data: {} } as unknown as FeedItem]} dropped={0} />
    </>,
  );
  expect(container.querySelector(".test time")?.getAttribute("datetime")).toBe(at);
  expect(container.textContent).toContain("1 shown");
  expect(screen.getAllByRole("status").map((s) => s.textContent)).toEqual(["Reachable from here, 2 tools"]);
});

test("why a server was left out stands once in its row", () => {
  render(
    <ul>
      <McpServerRow tests={tests()} server={{ name: "board", status: "filtered", reason_code: "via_ossicle", steps: { server_filtered: { at, reason_code: "via_ossicle" } } }} />
    </ul>,
  );
  const row = screen.getByText("board").closest("li") as HTMLElement;
  expect(row.textContent?.split("ossicle connects to it itself").length).toBe(2);
  expect(row.textContent).toContain("Left out");
});

test("what a try of a filter and a start of its watch say stands in one place, which comes into sight", async () => {
  const p = page();
  const seen = vi.spyOn(Element.prototype, "scrollIntoView");
  vi.spyOn(p.api, "ask").mockImplementation(((_method: string, path: string) => {
    if (path.endsWith("/resources")) return Promise.resolve({ servers: [] });
    if (path.endsWith("/dry-run")) return Promise.resolve({ ok: false, problem: "SyntaxError: no", lines: [] });
    return Promise.reject(new Error("SyntaxError: no"));
  }) as typeof p.api.ask);
  render(
    <PageContext value={p}>
      <StartWatch session="s" sessions={["s"]} onClose={() => undefined} />
    </PageContext>,
  );
  const section = screen.getByRole("region", { name: "What the filter would say" });
  const status = within(section).getByRole("status"); // there before it says anything
  await userEvent.type(screen.getByLabelText("Name"), "n");
  await userEvent.type(screen.getByLabelText("URI"), "memo://notes");
  seen.mockClear();
  await userEvent.click(screen.getByText("Try the filter"));
  await within(status).findByText(/cannot be started: SyntaxError/);
  expect(seen.mock.contexts.at(-1)).toBe(section);
  await userEvent.click(screen.getByText("Start"));
  await within(status).findByText("SyntaxError: no");
  expect(screen.getAllByText(/SyntaxError/), "the same is said twice").toHaveLength(1);
});

test("sessions without a watch are one line, in which each can be given one", async () => {
  const p = page();
  vi.spyOn(p.api, "ask").mockResolvedValue({ servers: [] });
  const wall = [...Array.from({ length: 50 }, (_, n) => session("quiet-" + n, 0)), ...Array.from({ length: 45 }, (_, n) => session("busy-" + n, 2))];
  const live = { phase: "live", code: "", error: "" };
  const known: Record<string, object> = { sessions: { ...live, state: wall }, other: { ...live, state: emptySession } };
  p.live.view = ((topic: string) => known[topic] ?? known["other"]) as typeof p.live.view;
  render(
    <PageContext value={p}>
      <WatchesView />
    </PageContext>,
  );
  expect(screen.getAllByRole("region", { name: /^Watches of busy-/ })).toHaveLength(40); // a connection has 64 subscriptions
  expect(screen.getByText(/5 more sessions with watches/)).toBeTruthy();
  expect(screen.queryByRole("region", { name: /^Watches of quiet-/ })).toBeNull();
  await userEvent.click(screen.getByText("50 sessions watch nothing"));
  await userEvent.click(screen.getByRole("button", { name: "Start a watch in quiet-7", hidden: true }));
  expect((screen.getByLabelText("Session") as HTMLSelectElement).value).toBe("quiet-7");
});

test("a filter of the inbox asks the daemon, not only what is loaded", async () => {
  const p = page();
  const wire = new FakeWire();
  const live = new Live(() => Promise.resolve(wire), { frame: (run) => run() });
  const ask = vi.spyOn(p.api, "ask").mockImplementation(((_m: string, path: string) =>
    Promise.resolve({ notices: [notice(path.includes("after") ? "older" : "old", "dead")], next: path.includes("after") ? "" : "c7" })) as typeof p.api.ask);
  live.socket.start();
  await act(async () => Promise.resolve());
  act(() => wire.open());
  render(
    <PageContext value={{ ...p, live }}>
      <InboxView />
    </PageContext>,
  );
  act(() => wire.answer("subscribe", { notices: [notice("new", "seen")], next: "n9", agents: [{ agent: "a", pending: 0 }] }));
  await screen.findByText("new");
  await userEvent.selectOptions(screen.getByLabelText("State"), "dead");
  await screen.findByText("old");
  expect(ask).toHaveBeenLastCalledWith("GET", "/v1/inbox?limit=100&state=dead", undefined, expect.anything());
  expect(screen.queryByText("new")).toBeNull();
  expect(screen.getByText(/1 notice that fits, of all that the daemon keeps; there are older ones/)).toBeTruthy();
  await userEvent.click(screen.getByText("Load older ones"));
  await screen.findByText("older");
  expect(ask).toHaveBeenLastCalledWith("GET", "/v1/inbox?limit=100&state=dead&after=c7", undefined, expect.anything());
  expect(screen.getByText("old")).toBeTruthy();
  await userEvent.selectOptions(screen.getByLabelText("State"), "");
  expect(screen.getByText("new")).toBeTruthy();
  live.socket.stop();
});

test("what is written while a message is on its way stays, and what was sent does not", async () => {
  const user = userEvent.setup();
  const { page: p } = connected("live");
  let taken = (_: { id: string }): void => undefined;
  vi.spyOn(p.api, "ask").mockImplementation(() => new Promise((resolve) => (taken = resolve as typeof taken)));
  render(
    <PageContext value={p}>
      <Composer id="a" info={session("a", 0)} state={emptySession} />
    </PageContext>,
  );
  const box = screen.getByLabelText<HTMLTextAreaElement>("Message to the agent");
  await user.type(box, "one{Enter}");
  expect(box.value, "it is not known to be taken").toBe("one");
  await user.type(box, " two");
  await act(async () => taken({ id: "i1" }));
  expect(box.value).toBe("one two");
  await user.type(box, "{Enter}");
  await act(async () => taken({ id: "i2" }));
  expect(box.value).toBe("");
});
