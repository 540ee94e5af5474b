// JSON whose numbers stay as they are spelt: one that a double cannot hold is kept
// as its text, and JSON.stringify writes it as it was.

interface Source {
  source?: string;
}

const risky = /\d{16}|\d[eE]\d/;

type RawJSON = { rawJSON?: (text: string) => unknown };

export function parse(text: string): unknown {
  const raw = (JSON as RawJSON).rawJSON;
  if (!raw || !risky.test(text)) return JSON.parse(text);
  const reviver = function (this: unknown, _key: string, value: unknown, context?: Source): unknown {
    if (typeof value !== "number" || context?.source === undefined) return value;
    return exact(value, context.source) ? value : raw(context.source);
  };
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

function exact(value: number, source: string): boolean {
  return Number.isSafeInteger(value) || String(value) === source || source.replace(/\D/g, "").length < 16;
}

/** Shows a value as indented JSON, and a string as itself. */
export function show(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  return JSON.stringify(value, null, 2);
}
