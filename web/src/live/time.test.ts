import { expect, test } from "vitest";
import { duration, relative, size } from "./time";

test("times are told in words", () => {
  const now = Date.parse("2026-11-30T12:00:00Z");
  const ago = (s: number): string => relative(new Date(now - s * 1000).toISOString(), now);
  expect([ago(3), ago(44), ago(300), ago(7200), ago(86_400 * 3)]).toEqual(["just now", "just now", "5 min. ago", "2 hr. ago", "3 days ago"]);
  expect(ago(-600)).toBe("in 10 min.");
  expect(relative("nonsense", now)).toBe("");
});

test("durations and sizes", () => {
  expect([0, 59_999, 125_000, 1_800_000, 11_400_000, 14_400_000].map(duration)).toEqual(["0 s", "59 s", "2 min 5 s", "30 min", "3 h 10 min", "4 h"]);
  expect([0, 12, 2048, 3_565_158].map(size)).toEqual(["0 B", "12 B", "2.0 KiB", "3.4 MiB"]);
});
