import { expect, test } from "vitest";
import { parse, show } from "./json";

test("numbers stay as they are spelt", () => {
  const raw = (JSON as { rawJSON?: unknown }).rawJSON;
  const value = parse('{"big":12345678901234567890,"small":1.5,"long":0.12345678901234567890}');
  if (raw) expect(show(value)).toBe('{\n  "big": 12345678901234567890,\n  "small": 1.5,\n  "long": 0.12345678901234567890\n}');
  expect((value as { small: number }).small).toBe(1.5);
});

test("a text is shown as itself, and nothing as nothing", () => {
  expect(show("<b>&")).toBe("<b>&");
  expect(show(null)).toBe("");
  expect(show({ a: [1] })).toBe('{\n  "a": [\n    1\n  ]\n}');
});
