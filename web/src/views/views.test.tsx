// @vitest-environment jsdom
import "../test/setup";
import { cleanup, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test, vi } from "vitest";
import type { Server } from "../live/report";
import type { DryRun, Entry, PageInfo, SessionInfo } from "../live/wire";
import type { View } from "../live/room";
import { emptySession } from "../live/session";
import type { SessionState } from "../live/session";
import { PageContext } from "../page";
import { page, tests } from "../test/page";
import { SafeText, fences } from "../ui/SafeText";
import { Time } from "../ui/Time";
import { Asked } from "./Asked";
import { EntryRow } from "./EntryRow";
import { DryRunResult } from "./DryRunResult";
import { McpPanel } from "./McpPanel";
import { McpServerRow } from "./McpServerRow";
import { McpSettings } from "./McpSettings";
import { cutOff } from "./rows";

afterEach(cleanup);

const at = "2026-11-30T06:00:00Z";
const hostile = '<img src=x onerror=alert(1)><script>alert(1)</script> [a](javascript:alert(1)) ![b](http://evil.example/x.png)';

const entry = (kind: string, extra: Partial<Entry> = {}): Entry => ({ seq: 1, time: at, kind, text: hostile, title: hostile, description: hostile, input: { x: hostile }, error: hostile, ...extra });

test("what an agent says is text, never markup, address or image", () => {
  const { container } = render(<SafeText text={hostile + "\n```\n" + hostile + "\n```\n**bold** `code`"} />);
  expect(container.querySelectorAll("img, script, a, iframe, style")).toHaveLength(0);
  expect(container.querySelector("strong")?.textContent).toBe("bold");
  expect(container.textContent).toContain("<script>alert(1)</script>");
});

test("stars and ticks that mark nothing stay where they are", () => {
  const plain = [
    "as a JSON list; ** spans directories. Example: uri=files://d/**/*.md and files://d/**/*.md",
    "files://a/**/b or files://c/**/d",
    "a/**,b/**",
    "2 ** 3 ** 4",
    "** a**",
    "**a **",
    "a**.b**c",
    "****four****",
    "**",
    "****",
    "``a`b``",
  ];
  for (const text of plain) {
    const { container, unmount } = render(<SafeText text={text} />);
    expect(container.textContent, text).toBe(text);
    unmount();
  }
  for (const [text, bold] of [["**a**", "a"], ["(**a b**)", "a b"], ["x **Note:** y", "Note:"], ["**\u201ca\u201d**.", "\u201ca\u201d"], ["see **/usr/bin** there", "/usr/bin"], ["a\n**b**\nc", "b"], ["a**b**c", "b"]]) {
    const { container, unmount } = render(<SafeText text={text!} />);
    expect(container.querySelector("strong")?.textContent, text).toBe(bold);
    unmount();
  }
});

test("fences that are never closed, or closed by others, hold what follows", () => {
  expect(fences("a\n```js\nb\n~~~\nc")).toEqual([{ code: false, text: "a" }, { code: true, text: "b\n~~~\nc" }]);
  expect(fences("````\n```\n````\nx")).toEqual([{ code: true, text: "```" }, { code: false, text: "x" }]);
});

test("entries of every kind are shown, and none of them becomes markup", () => {
  const kinds = ["user", "queue_operation", "monitor_event", "context", "assistant", "thought", "tool", "permission", "unknown", "run_start", "run_end", "agent", "missing", "a_future_kind"];
  for (const kind of kinds) {
    for (const open of [false, true]) {
      const { container, unmount } = render(<EntryRow entry={entry(kind)} open={open} onOpen={() => undefined} />);
      expect(container.textContent, kind).not.toBe("");
      expect(container.querySelectorAll("img, script, a, iframe, style"), kind).toHaveLength(0);
      unmount();
    }
  }
});

// N-9: a notice is shown as an event of its watch, never as something that a person said.
test("a notice is an event of its watch", () => {
  const { container } = render(<EntryRow entry={entry("monitor_event", { description: "watch cm k8s://x", text: "line" })} open={false} onOpen={() => undefined} />);
  expect(container.textContent).toContain("watch cm k8s://x");
  expect(container.querySelector(".user")).toBeNull();
});

// N-12: a reply that was not published says so.
test("NO_REPLY is shown as not published", () => {
  render(<EntryRow entry={entry("assistant", { text: "NO_REPLY", suppressed: true })} open={false} onOpen={() => undefined} />);
  expect(screen.getByText(/not published/)).toBeTruthy();
});

// N-25: options are told apart by what they mean, not by their place or name.
test("options of a permission request stand by kind", async () => {
  const p = page();
  const ask = vi.spyOn(p.api, "ask").mockResolvedValue(undefined);
  render(
    <PageContext value={p}>
      <Asked
        session="s"
        question={{
          id: "ask_1",
          call: { id: "c", title: "rm -rf" },
          options: [
            { id: "o1", name: "Always", kind: "allow_always" },
            { id: "o3", name: "No", kind: "reject_once" },
            { id: "o2", name: "Yes", kind: "allow_once" },
            { id: "o4", name: "Sure", kind: "brand_new" },
          ],
        }}
      />
    </PageContext>,
  );
  const labels = screen.getAllByRole("button").map((b) => b.textContent);
  expect(labels).toEqual(["Allow once: “Yes”", "Allow from now on: “Always”", "Reject: “No”", "Sure (brand_new)", "Decide nothing (ends the turn)"]);
  await userEvent.click(screen.getByText("Allow once: “Yes”"));
  expect(ask).toHaveBeenCalledWith("POST", "/v1/sessions/s/answer", { question: "ask_1", option: "o2" });
});

// words beside the colour, and what is not known shown as it is.
test("a row of the report has words, steps and no invention", () => {
  render(
    <PageContext value={page()}>
      <ul>
        <McpServerRow tests={tests()} server={{ name: "board", status: "failed", reason_code: "brand_new_code", summary: hostile, steps: { server_resolved: { at } } }} />
      </ul>
    </PageContext>,
  );
  const row = screen.getByText("board").closest("li") as HTMLElement;
  expect(within(row).getByText("Failed")).toBeTruthy();
  expect(row.textContent).toContain("brand_new_code");
  expect(within(row).getByText(/Agent connected/).textContent).toContain("not seen");
  expect(row.querySelectorAll("img, script, a")).toHaveLength(0);
});

// filtered is grey.
test("a server that was left out is marked as no failure", () => {
  const marks = (server: Server) => {
    const { container, unmount } = render(
      <PageContext value={page()}>
        <McpServerRow tests={tests()} server={server} />
      </PageContext>,
    );
    const red = container.querySelectorAll(".mark.no").length;
    unmount();
    return red;
  };
  expect(marks({ name: "b", status: "filtered", steps: { server_filtered: { at } } })).toBe(0);
  expect(marks({ name: "b", status: "failed", failed_at: at })).toBe(1);
});

test("a filter that fails on what it is tried on is not said to run", () => {
  const said = (...lines: NonNullable<DryRun["lines"]>) => {
    const { unmount } = render(<DryRunResult outcome={{ result: { ok: true, lines } }} />);
    const note = screen.getByRole("status").firstElementChild as HTMLElement;
    const words = `${note.className}: ${note.textContent}`;
    unmount();
    return words;
  };
  const good = { event: {}, line: "x" };
  const bad = { event: {}, line: null, error: "KeyError" };
  expect(said(good, good)).toMatch(/green: The filter runs/);
  expect(said(bad, bad)).toMatch(/amber: .*fails on every event/);
  expect(said(bad, good)).toMatch(/amber: .*fails on 1 of 2 events/);
  expect(said()).toMatch(/green/);
});

test("a turn that nobody ended is shown as cut off, one that may run is not", () => {
  const run = (seq: number, kind: string, of: string) => entry(kind, { seq, run: of });
  const two = [run(1, "run_start", "a"), run(2, "run_end", "a"), run(3, "run_start", "b")];
  expect([...cutOff(two, true)]).toEqual([]);
  expect([...cutOff(two, false)]).toEqual([3]);
  expect([...cutOff([...two, run(4, "run_start", "c")], true)]).toEqual([3]);
  render(<EntryRow entry={entry("run_start", { run: "b", inputs: ["i"] })} open={false} onOpen={() => undefined} cut />);
  expect(screen.getByText(/was cut off/)).toBeTruthy();
});

test("what happened since the last tick of the clock is not to come", () => {
  vi.useFakeTimers({ now: Date.parse(at) });
  render(<Time at={at} />);
  vi.setSystemTime(Date.parse(at) + 12_000);
  const { container } = render(<Time at={new Date().toISOString()} />);
  expect(container.textContent).toBe("just now");
  vi.useRealTimers();
});

// a start that waits for a server says so, and no longer once it is over.
test("an agent whose start is over waits for nothing", () => {
  const attempt = { session_id: "s", execution_id: "x", attachment_attempt_id: "a", started_at: at, updated_at: at, session_blocked_at: at, servers: [] };
  const view = (extra: object) => ({ phase: "live", state: { ...emptySession, report: { schema_version: 1, current_attachment_attempt_id: "a", attempts: [{ ...attempt, ...extra }] } } }) as unknown as View<SessionState>;
  const panel = (extra: object) => (
    <PageContext value={page()}>
      <McpPanel id="s" view={view(extra)} tests={tests()} onLeave={() => undefined} />
    </PageContext>
  );
  const { rerender } = render(panel({}));
  expect(screen.getByText(/has not answered since/)).toBeTruthy();
  for (const over of [{ session_error: { occurred_at: at } }, { agent_ended_at: at }]) {
    rerender(panel(over));
    expect(screen.queryByText(/has not answered since/)).toBeNull();
    expect(screen.getByText(/waited for a server/)).toBeTruthy();
  }
});

//
test("a configuration that cannot be read is unknown, and no list of servers stands in for it", () => {
  const session = { meta: { id: "s", profile: "coder", created_at: at, updated_at: at }, state: "idle", inputs: 0, notices: 0, running: true } as SessionInfo;
  const known: PageInfo = { profiles: [{ name: "coder", engine: "acp", servers: ["memo"] }] };
  for (const [info, says] of [
    [null, "unknown: the daemon's configuration could not be read"],
    [{ profiles: [] }, "unknown: the daemon's configuration has no profile of this name now"],
    [known, "memo"],
  ] as [PageInfo | null, string][]) {
    const { unmount } = render(
      <PageContext value={{ ...page(), info }}>
        <McpSettings open onClose={() => undefined} info={session} />
      </PageContext>,
    );
    const servers = screen.getByText("Servers of the profile");
    expect(servers.nextElementSibling?.textContent).toBe(says);
    unmount();
  }
});
