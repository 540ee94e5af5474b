// Times in words.

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3_600], ["minute", 60],
];

const relativeFormat = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** "just now", "5 min. ago", "yesterday". */
export function relative(t: string, now: number): string {
  const s = (Date.parse(t) - now) / 1000;
  if (Number.isNaN(s)) return "";
  if (Math.abs(s) < 45) return s > 5 ? "in a moment" : "just now";
  for (const [unit, size] of units) if (Math.abs(s) >= size * 0.75) return relativeFormat.format(Math.round(s / size), unit);
  return "just now";
}

const absoluteFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clockFormat = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export function absolute(t: string): string {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? t : absoluteFormat.format(d);
}

export function clock(t: string): string {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? t : clockFormat.format(d);
}

/** A duration: "4 s", "2 min 5 s", "30 min", "3 h 10 min". */
export function duration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  const rest = (n: number, unit: string): string => (n ? ` ${n} ${unit}` : "");
  if (s < 3600) return `${Math.floor(s / 60)} min${rest(s % 60, "s")}`;
  return `${Math.floor(s / 3600)} h${rest(Math.floor((s % 3600) / 60), "min")}`;
}

/** A number of bytes: "12 B", "3.4 MiB". */
export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = bytes;
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}
