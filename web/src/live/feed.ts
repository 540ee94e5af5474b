// Follows the feed: one stream, which resumes after the last event that came.
import type { Api } from "./api";
import { ApiError, message } from "./api";
import { parse } from "./json";
import { pauseBefore } from "./socket";
import type { ServerEvent } from "./sse";
import { SseParser } from "./sse";

export interface FeedItem {
  readonly key: string;
  readonly kind: "event" | "gap";
  readonly id: string;
  readonly topic: string;
  readonly type: string;
  readonly name: string; // the event's key
  readonly time: string;
  readonly data: unknown;
  readonly text: string; // the data in one line, of a gap what it says
}

export type FeedStatus = "connecting" | "live" | "reconnecting" | "failed" | "closed";

/** Events that the page keeps; older ones go. */
export const maxItems = 5_000;
const line = 400;

const gaps: Record<string, string> = {
  evicted: "they are no longer kept",
  slow: "this page was too far behind",
  epoch: "the log is another one; it is told from its beginning",
  future: "the log never came to the position that this page knew; it goes on from its end",
};

export function toItem(e: ServerEvent): FeedItem | null {
  let d: Record<string, unknown>;
  try {
    d = parse(e.data) as Record<string, unknown>;
  } catch {
    return null;
  }
  if (typeof d !== "object" || d === null) return null;
  if (e.type === "gap") {
    const reason = String(d["reason"] ?? "");
    const n = typeof d["dropped"] === "number" ? `${d["dropped"]} events` : "Events";
    const why = Object.hasOwn(gaps, reason) ? gaps[reason] : reason;
    return { key: "gap " + e.id, kind: "gap", id: e.id, topic: "", type: "gap", name: "", time: "", data: d, text: `${n} are missing here: ${why}.` };
  }
  const text = JSON.stringify(d["data"]) ?? "";
  return {
    key: e.id, kind: "event", id: e.id, topic: String(d["topic"] ?? ""), type: String(d["type"] ?? e.type), name: String(d["key"] ?? ""),
    time: String(d["time"] ?? ""), data: d["data"], text: text.length > line ? text.slice(0, line) + "…" : text,
  };
}

export interface FollowOptions {
  topics: readonly string[];
  /** Where to begin: a position, or "" for the end. */
  from: string;
  /** Hears of items, maybe none, and of the position behind them. */
  onItems: (items: FeedItem[], position: string) => void;
  /** Status is that of an answer which refused, else 0. */
  onStatus: (s: FeedStatus, error: string, status: number) => void;
  random?: () => number;
}

/** Follows until signal is aborted, or it is refused. */
export async function follow(api: Api, o: FollowOptions, signal: AbortSignal): Promise<void> {
  let position = o.from;
  let attempt = 0;
  o.onStatus("connecting", "", 0);
  while (!signal.aborted) {
    try {
      const query = o.topics.map((t) => "topic=" + encodeURIComponent(t)).join("&");
      const answer = await api.request("GET", "/v1/events" + (query ? "?" + query : ""), undefined, {
        signal, timeout: 0, accept: "text/event-stream", headers: position ? { "Last-Event-ID": position } : {},
      });
      o.onStatus("live", "", 0);
      attempt = 0;
      position = await read(answer, position, o, signal);
    } catch (e) {
      if (signal.aborted) break;
      if (e instanceof ApiError && e.status >= 400 && e.status < 500 && e.status !== 429) {
        o.onStatus("failed", message(e), e.status);
        return;
      }
    }
    if (signal.aborted) break;
    o.onStatus("reconnecting", "", 0);
    await pause(pauseBefore(attempt++, o.random ?? Math.random), signal);
  }
  o.onStatus("closed", "", 0);
}

async function read(answer: Response, position: string, o: FollowOptions, signal: AbortSignal): Promise<string> {
  const reader = answer.body?.getReader();
  if (!reader) return position;
  const parser = new SseParser();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return parser.lastId || position;
      const items = parser.feed(decoder.decode(value, { stream: true })).map(toItem).filter((i) => i !== null);
      if (!items.length && position === (parser.lastId || position)) continue;
      position = parser.lastId || position;
      o.onItems(items, position);
    }
  } catch {
    return parser.lastId || position; // lost: resume there
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done);
  });
}
