import type { Push, SocketOptions, Status, Wire } from "./socket";
import { LiveError, Socket } from "./socket";
import type { Room, View } from "./room";

// A topic that nobody looks at any more is kept for a moment: whoever goes back
// and forth does not load it again each time.
const lingering = 5_000;
// Pushes of one frame are reduced and shown together. In a hidden page there are no
// frames.
const hiddenFrame = 250;
// The most pushes that wait for a frame; then they are reduced at once.
const maxWaiting = 2_000;

interface Channel {
  readonly topic: string;
  view: View<unknown>;
  readonly room: Room<unknown>;
  readonly listeners: Set<() => void>;
  readonly params: () => Record<string, unknown>;
  pending: { action: string; data: unknown }[];
  subscribed: boolean;
  asking: number; // the number of the subscribe request under way, 0 for none
  linger: ReturnType<typeof setTimeout> | undefined;
}

export type Frame = (run: () => void) => void;

function nextFrame(run: () => void): void {
  if (typeof document !== "undefined" && document.visibilityState === "visible" && typeof requestAnimationFrame === "function") requestAnimationFrame(run);
  else setTimeout(run, hiddenFrame);
}

/** The live connection and all that is known by it. */
export class Live {
  readonly socket: Socket;
  readonly #channels = new Map<string, Channel>();
  readonly #statusListeners = new Set<() => void>();
  readonly #frame: Frame;
  #framed = false;
  #asked = 0;

  constructor(dial: () => Promise<Wire>, options: { random?: () => number; frame?: Frame } = {}) {
    this.#frame = options.frame ?? nextFrame;
    const o: SocketOptions = { dial, onPush: (p) => this.#push(p), onStatus: (s) => this.#status(s), random: options.random };
    this.socket = new Socket(o);
  }

  get status(): Status {
    return this.socket.status;
  }

  onStatus = (listener: () => void): (() => void) => {
    this.#statusListeners.add(listener);
    return () => this.#statusListeners.delete(listener);
  };

  /** What is known of a topic now. */
  view<S>(topic: string, room: Room<S>): View<S> {
    return (this.#channels.get(topic)?.view ?? loading(room)) as View<S>;
  }

  /** Holds a topic until the returned function is called. */
  hold<S>(topic: string, room: Room<S>, listener: () => void, params: () => Record<string, unknown> = () => ({})): () => void {
    let c = this.#channels.get(topic);
    if (!c) {
      c = {
        topic, room: room as Room<unknown>, view: loading(room), listeners: new Set(), params,
        pending: [], subscribed: false, asking: 0, linger: undefined,
      };
      this.#channels.set(topic, c);
    }
    const held = c;
    clearTimeout(held.linger);
    held.linger = undefined;
    held.listeners.add(listener);
    if (!held.subscribed && held.asking === 0) void this.#subscribe(held);
    return () => {
      held.listeners.delete(listener);
      if (held.listeners.size > 0 || held.linger !== undefined) return;
      held.linger = setTimeout(() => this.#forget(held), lingering);
    };
  }

  /** Subscribes again to a topic that failed. */
  retry(topic: string): void {
    const c = this.#channels.get(topic);
    if (c && !c.subscribed && c.asking === 0) void this.#subscribe(c);
  }

  /** Changes what is known of a topic by something that the page did itself. */
  apply(topic: string, action: string, data: unknown): void {
    const c = this.#channels.get(topic);
    if (c) this.#show(c, { ...c.view, state: c.room.pushes(c.view.state, [{ action, data }]) });
  }

  request(action: string, params: Record<string, unknown>, timeout?: number): Promise<unknown> {
    return this.socket.request(action, params, timeout);
  }

  async #subscribe(c: Channel): Promise<void> {
    if (this.socket.status !== "live") return;
    const asking = ++this.#asked;
    c.asking = asking;
    try {
      const result = await this.socket.request("subscribe", { topic: c.topic, ...c.params() });
      if (c.asking !== asking) return;
      c.asking = 0;
      c.subscribed = true;
      const early = c.pending;
      c.pending = [];
      const state = c.room.snapshot(c.view.state, result);
      this.#show(c, { phase: "live", state: early.length ? c.room.pushes(state, early) : state, code: "", error: "" });
    } catch (e) {
      if (c.asking !== asking) return;
      c.asking = 0;
      c.pending = [];
      const code = e instanceof LiveError ? e.code : "failed";
      // Without a connection the topic waits for the next one.
      if (this.socket.status !== "live") return;
      this.#show(c, { ...c.view, phase: "failed", code, error: e instanceof Error ? e.message : String(e) });
    }
  }

  #push(p: Push): void {
    const c = this.#channels.get(p.topic);
    if (!c) return;
    if (p.action === "gap") {
      c.subscribed = false;
      c.pending = [];
      if (c.asking === 0) void this.#subscribe(c);
      return;
    }
    c.pending.push({ action: p.action, data: p.data });
    if (!c.subscribed) {
      // What comes before the snapshot's answer is applied behind it; of a flood
      // only the end matters, and the snapshot is newer than its beginning.
      if (c.pending.length > maxWaiting) c.pending.splice(0, c.pending.length - maxWaiting);
      return;
    }
    if (c.pending.length >= maxWaiting) this.#reduce(c);
    if (this.#framed) return;
    this.#framed = true;
    this.#frame(() => {
      this.#framed = false;
      for (const each of this.#channels.values()) if (each.subscribed && each.pending.length) this.#reduce(each);
    });
  }

  #reduce(c: Channel): void {
    const pushes = c.pending;
    c.pending = [];
    const state = c.room.pushes(c.view.state, pushes);
    if (state !== c.view.state) this.#show(c, { ...c.view, state });
  }

  #show(c: Channel, view: View<unknown>): void {
    c.view = view;
    for (const listener of c.listeners) listener();
  }

  #status(s: Status): void {
    for (const c of this.#channels.values()) {
      c.subscribed = false;
      c.asking = 0;
      c.pending = [];
      if (s === "live") void this.#subscribe(c);
      else if (c.view.phase === "live") this.#show(c, { ...c.view, phase: "stale" });
    }
    for (const listener of this.#statusListeners) listener();
  }

  #forget(c: Channel): void {
    if (c.listeners.size > 0) return;
    this.#channels.delete(c.topic);
    if (c.subscribed || c.asking !== 0) void this.socket.request("unsubscribe", { topic: c.topic }).catch(() => undefined);
    c.asking = -1;
  }
}

const loadings = new WeakMap<object, View<unknown>>();

function loading<S>(room: Room<S>): View<S> {
  let v = loadings.get(room);
  if (!v) {
    v = { phase: "loading", state: room.initial, code: "", error: "" };
    loadings.set(room, v);
  }
  return v as View<S>;
}
