// The live connection: one WebSocket, requests with ids, and pushes by topic.
// Whoever holds a topic is told when the connection is new, and subscribes again:
// the snapshot then says all that was missed.
import { parse } from "./json";

export type Status = "connecting" | "live" | "reconnecting" | "closed";

export interface Push {
  topic: string;
  action: string;
  data: unknown;
}

/** An error that the daemon answered a request with. */
export class LiveError extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message || code);
    this.name = "LiveError";
    this.code = code;
  }
}

/** What of a WebSocket is used. */
export interface Wire {
  send(text: string): void;
  close(): void;
  onopen: (() => void) | null;
  onclose: (() => void) | null;
  onmessage: ((e: { data: unknown }) => void) | null;
}

export interface SocketOptions {
  /** Opens a connection; it throws where there is no way in now. */
  dial: () => Promise<Wire>;
  onPush: (p: Push) => void;
  onStatus: (s: Status) => void;
  random?: () => number;
}

interface Waiting {
  resolve: (result: unknown) => void;
  reject: (e: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

const firstPause = 250;
const longestPause = 10_000;
const patience = 20_000;
// The daemon takes no more than 256 KiB in one message.
const maxMessage = 256 * 1024;

export const protocol = "ossicle.live.v1";

/** The pause before attempt n (from 0): doubled each time, at most 10 s, half of it by chance. */
export function pauseBefore(n: number, random: () => number): number {
  const full = Math.min(firstPause * 2 ** Math.min(n, 20), longestPause);
  return full / 2 + (full / 2) * random();
}

export class Socket {
  readonly #o: SocketOptions;
  #wire: Wire | null = null;
  #next = 1;
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #waiting = new Map<number, Waiting>();
  #open = false;
  #stopped = true;
  #generation = 0;
  status: Status = "closed";

  constructor(o: SocketOptions) {
    this.#o = o;
  }

  start(): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#attempt = 0;
    this.#tell("connecting");
    void this.#connect();
  }

  stop(): void {
    this.#stopped = true;
    this.#generation++;
    clearTimeout(this.#timer);
    this.#drop("the page left");
    this.#tell("closed");
  }

  /** Tries again now: the network is back, or somebody looks at the page again. */
  hurry(): void {
    if (this.#stopped || this.#open || this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    void this.#connect();
  }

  request(action: string, params: Record<string, unknown> = {}, timeout: number = patience): Promise<unknown> {
    const wire = this.#wire;
    if (!this.#open || !wire) return Promise.reject(new LiveError("unavailable", "There is no connection to the daemon now."));
    const id = this.#next++;
    const text = JSON.stringify({ ...params, id, action });
    if (text.length > maxMessage) return Promise.reject(new LiveError("bad_request", "This is too much for one message."));
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new LiveError("timeout", "The daemon did not answer in time."));
      }, timeout);
      this.#waiting.set(id, { resolve, reject, timer });
      wire.send(text);
    });
  }

  async #connect(): Promise<void> {
    const generation = ++this.#generation;
    let wire: Wire;
    try {
      wire = await this.#o.dial();
    } catch {
      if (generation === this.#generation) this.#later();
      return;
    }
    if (generation !== this.#generation || this.#stopped) {
      wire.close();
      return;
    }
    this.#wire = wire;
    const slow = setTimeout(() => wire.close(), patience);
    wire.onopen = () => {
      clearTimeout(slow);
      this.#open = true;
      this.#attempt = 0;
      this.#tell("live");
    };
    wire.onmessage = (e) => {
      if (typeof e.data === "string") this.#take(e.data);
    };
    wire.onclose = () => {
      clearTimeout(slow);
      if (this.#wire !== wire) return;
      this.#drop("the connection was lost");
      if (!this.#stopped) this.#later();
    };
  }

  #later(): void {
    if (this.#stopped) return;
    this.#tell("reconnecting");
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        void this.#connect();
      },
      pauseBefore(this.#attempt++, this.#o.random ?? Math.random),
    );
  }

  #drop(why: string): void {
    const wire = this.#wire;
    this.#wire = null;
    this.#open = false;
    wire?.close();
    for (const w of this.#waiting.values()) {
      clearTimeout(w.timer);
      w.reject(new LiveError("unavailable", why));
    }
    this.#waiting.clear();
  }

  #take(text: string): void {
    let m: Record<string, unknown>;
    try {
      m = parse(text) as Record<string, unknown>;
    } catch {
      return; // not ours
    }
    if (typeof m !== "object" || m === null) return;
    if (typeof m["id"] === "number") {
      const w = this.#waiting.get(m["id"]);
      if (!w) return;
      this.#waiting.delete(m["id"]);
      clearTimeout(w.timer);
      const error = m["error"] as { code?: unknown; message?: unknown } | undefined;
      if (error) w.reject(new LiveError(String(error.code ?? "failed"), String(error.message ?? "")));
      else w.resolve(m["result"]);
      return;
    }
    if (typeof m["topic"] === "string" && typeof m["action"] === "string") {
      this.#o.onPush({ topic: m["topic"], action: m["action"], data: m["data"] });
    }
  }

  #tell(s: Status): void {
    if (this.status === s) return;
    this.status = s;
    this.#o.onStatus(s);
  }
}
