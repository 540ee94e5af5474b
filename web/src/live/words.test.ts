import { expect, test } from "vitest";
import type { Sandbox } from "./sandboxes";
import { causeWords, sandboxWords } from "./sandboxes";
import { stateTones, stateWords, troubleWords } from "./sessions";
import type { SessionInfo } from "./wire";

const at = "2026-11-30T06:00:00Z";
const session = (state: string, kind?: string): SessionInfo => ({ meta: { id: "s", created_at: at, updated_at: at }, state, inputs: 0, notices: 0, running: true, trouble: kind ? { kind, text: "why", since: at } : undefined });

test("a session with which something is wrong is never idle in grey", () => {
  const words = { agent_unavailable: "Agent unavailable", agent_exited: "Agent ended", turn_failed: "Last turn failed", turn_cut_off: "Last turn cut off", of_the_future: "of_the_future" };
  for (const [kind, label] of Object.entries(words)) {
    const got = stateWords(session("idle", kind));
    expect(got.label).toBe(label);
    expect(stateTones[got.tone]).not.toBe("grey");
    expect(stateWords(session("stopped", kind)).label).toBe("Stopped");
    expect(troubleWords(session("stopped", kind))?.label).toBe(label);
    // It is being tried again.
    expect(stateWords(session("running", kind)).label).toBe("Working");
    expect(troubleWords(session("starting", kind))).toBeNull();
  }
  expect(stateWords(session("idle"))).toEqual({ label: "Idle", tone: "idle" });
  expect(stateWords({ ...session("idle", "turn_failed"), questions: 1 }).label).toBe("Waits for your answer");
});

test("a sandbox that somebody killed has not failed", () => {
  const words = (extra: Partial<Sandbox>) => sandboxWords({ id: "b", profile: "light", state: "failed", ...extra });
  expect(words({ failure: "killed" })).toEqual({ label: "Killed", tone: "grey" });
  expect(words({ failure: "sandbox_exited" })).toEqual({ label: "Failed", tone: "red" });
  expect(words({ state: "released" })).toEqual({ label: "Released", tone: "grey" });
  expect(words({ state: "of_the_future" })).toEqual({ label: "of_the_future", tone: "grey" });
});

test("why a sandbox ended is said in words, and an unknown cause as it is", () => {
  const why = (extra: Partial<Sandbox>) => causeWords({ id: "b", profile: "light", state: "failed", ...extra });
  expect(why({ failure: "channel_lost", detail: "no answer" })).toBe("the connection was lost and did not come back: no answer");
  expect(why({ state: "released", release: "idle" })).toBe("nobody used it for long enough");
  expect(why({ failure: "of_the_future" })).toBe("of_the_future");
  expect(why({ failure: "killed", detail: "by a person" })).toBe("by a person");
  expect(why({ state: "running" })).toBe("");
});
