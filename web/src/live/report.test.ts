import { expect, test } from "vitest";
import type { Server } from "./report";
import { checklist, compareTimes, currentAttempt, reasonText, statusOf } from "./report";

// words and colours.
test("statuses have words and a colour", () => {
  expect(["active", "connected", "delivered", "failed", "filtered", "unavailable", "unknown"].map(statusOf)).toEqual([
    { label: "Active", tone: "green" },
    { label: "Connected", tone: "amber" },
    { label: "Delivered · connection unverified", tone: "amber" },
    { label: "Failed", tone: "red" },
    { label: "Filtered", tone: "grey" },
    { label: "Unavailable", tone: "grey" },
    { label: "Configured", tone: "grey" },
  ]);
});

// what a newer version says is tolerated and shown conservatively.
test("what is not known is grey and shown as it is", () => {
  expect(statusOf("quantum")).toEqual({ label: "Unknown (quantum)", tone: "grey" });
  expect(statusOf("constructor")).toEqual({ label: "Unknown (constructor)", tone: "grey" });
  expect(statusOf(undefined).tone).toBe("grey");
  expect(reasonText("new_code")).toBe("new_code");
  expect(reasonText("toString")).toBe("toString");
  expect(currentAttempt({ schema_version: 9, attempts: null })).toBeUndefined();
});

test("times are compared to the nanosecond, and across zones", () => {
  expect(compareTimes("2026-11-30T06:00:00.000000002Z", "2026-11-30T06:00:00.000000001Z")).toBeGreaterThan(0);
  expect(compareTimes("2026-11-30T06:00:00Z", "2026-11-30T07:00:00+01:00")).toBe(0);
  expect(compareTimes("2026-11-30T06:00:00.1Z", "2026-11-30T06:00:00.09Z")).toBeGreaterThan(0);
  expect(compareTimes(undefined, "2026-11-30T06:00:00Z")).toBeLessThan(0);
});

// a checklist with times; nothing is ticked that was not seen.
test("the checklist ticks what was seen", () => {
  const at = "2026-11-30T06:00:00Z";
  const s: Server = { name: "m", status: "connected", connected_at: at, steps: { server_resolved: { at }, server_delivered: { at }, initialize_observed: { at } } };
  expect(checklist(s).filter((c) => c.at).map((c) => c.key)).toEqual(["resolved", "delivered", "connected"]);
  const left: Server = { name: "m", status: "filtered", steps: { server_resolved: { at }, server_filtered: { at, reason_code: "policy_denied" } } };
  expect(checklist(left)).toContainEqual({ key: "filtered", label: "Left out", at, detail: "a policy leaves the server out" });
  // a failure that was cleared is told as such.
  expect(checklist({ name: "m", status: "active", failed_at: at }).at(-1)?.label).toBe("Failed before, cleared since");
});
