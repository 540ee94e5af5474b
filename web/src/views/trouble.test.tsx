// @vitest-environment jsdom
import "../test/setup";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Entry, SessionInfo } from "../live/wire";
import { PageContext } from "../page";
import { page } from "../test/page";
import { EntryRow } from "./EntryRow";
import { SessionList } from "./SessionList";
import { TroubleNote } from "./TroubleNote";
import { WorkerRow } from "./WorkerRow";

const at = "2026-11-30T06:00:00Z";
const hostile = "<img src=x onerror=alert(1)>";
const session = (extra: Partial<SessionInfo>): SessionInfo => ({ meta: { id: "s", created_at: at, updated_at: at }, state: "idle", inputs: 0, notices: 0, running: true, ...extra });
const unavailable = { kind: "agent_unavailable", text: `The agent could not be started: ${hostile}. Mend the cause.`, since: at };

test("what is wrong is said in the list, and with its cause where the session is open", () => {
  const { container, rerender } = render(<TroubleNote info={session({ trouble: unavailable })} />);
  const note = screen.getByRole("status");
  expect(note.textContent).toBe(unavailable.text); // and no time, which would be spoken whenever it changes
  expect(container.querySelector("time")?.getAttribute("datetime")).toBe(at);
  expect(container.querySelectorAll("img")).toHaveLength(0);
  for (const over of [session({}), session({ state: "running", trouble: unavailable }), null]) {
    rerender(<TroubleNote info={over} />);
    expect(screen.getByRole("status")).toBe(note); // what appears in it is spoken
    expect(container.textContent).toBe("");
    expect(container.querySelector(".note")).toBeNull();
  }
});

test("the list has a word for it, which a screen reader gets too", () => {
  const { container } = render(<SessionList sessions={[session({ trouble: unavailable }), session({ meta: { id: "t", created_at: at, updated_at: at }, state: "stopped", running: false, trouble: { kind: "turn_cut_off", text: "x" } })]} chosen="" />);
  expect(screen.getByRole("link", { name: /^s.*Agent unavailable/ })).toBeTruthy();
  expect(screen.getByRole("link", { name: /^t.*Stopped.*Last turn cut off/ })).toBeTruthy();
  expect(container.querySelector(".badge.red")?.textContent).toBe("Agent unavailable");
  expect(container.textContent).not.toContain("Idle");
});

test("how a turn ended is said by its cause", () => {
  const said = (cause: string | undefined, error = "it broke"): string => {
    const entry: Entry = { seq: 1, time: at, kind: "run_end", run: "r", error, cause };
    const { container, unmount } = render(<EntryRow entry={entry} open={false} onOpen={() => undefined} />);
    const words = `${container.querySelector(".red") ? "red" : "grey"}: ${container.textContent}`;
    unmount();
    return words;
  };
  expect(said("cut_off")).toMatch(/^red: This turn was cut off: ossicle went away/);
  expect(said("stopped")).toMatch(/^red: This turn was cut off: the session was stopped/);
  expect(said("exited", "run agent: it exited: exit status 3")).toMatch(/^red: The turn failed: the agent ended in its midst: exit status 3 /);
  expect(said("unavailable", "start agent: start x: no such file")).toMatch(/^red: The turn failed: the agent could not be started: start x: no such file /);
  for (const cause of ["failed", "of_the_future", undefined]) expect(said(cause)).toMatch(/^red: The turn failed: it broke/);
  for (const cause of ["cancelled", "reset"]) expect(said(cause)).toMatch(/^grey: Cancelled/);
  expect(said(undefined, "agent: the run was cancelled")).toMatch(/^grey: Cancelled/);
  render(<EntryRow entry={{ seq: 1, time: at, kind: "agent", title: "unavailable", error: "start agent: start /nosuch: no such file" }} open={false} onOpen={() => undefined} />);
  expect(screen.getByText(/The agent could not be started: start \/nosuch: no such file/)).toBeTruthy();
});

test("a sandbox says that it was killed, and the clocks of its worker once there is one", () => {
  const row = (extra: object): string => {
    const { container, unmount } = render(
      <PageContext value={page()}>
        <WorkerRow sandbox={{ id: "b", profile: "light", state: "running", created: at, exec_seconds: 0, idle_seconds: 0, exec_budget_seconds: 900, ...extra }} />
      </PageContext>,
    );
    const facts = container.querySelector("dl")?.textContent ?? "";
    const badge = container.querySelector(".badge");
    unmount();
    return `${badge?.className} ${badge?.textContent}: ${facts}`;
  };
  const killed = row({ state: "failed", failure: "killed", detail: "asked for" });
  expect(killed).toMatch(/grey *Killed: .*Whyasked for/);
  expect(killed).not.toMatch(/Failed|sandbox_exited/);
  expect(row({})).not.toMatch(/Worker up|Idle/);
  // It goes on between two signs of life.
  expect(row({ exec_seconds: 10, heartbeat_age_seconds: 5 })).toMatch(/Worker up1[45] s of 15 min/);
});
