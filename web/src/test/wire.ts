import type { Wire } from "../live/socket";

/** A connection whose other end is the test. */
export class FakeWire implements Wire {
  readonly sent: Record<string, unknown>[] = [];
  closed = false;
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((e: { data: unknown }) => void) | null = null;

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.onclose?.();
  }

  open(): void {
    this.onopen?.();
  }

  say(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  /** Answers the newest request of an action. */
  answer(action: string, result: unknown): void {
    const m = this.sent.findLast((s) => s["action"] === action);
    if (!m) throw new Error(`nobody asked for ${action}`);
    this.say({ id: m["id"], result });
  }

  refuse(action: string, code: string, message = ""): void {
    const m = this.sent.findLast((s) => s["action"] === action);
    if (!m) throw new Error(`nobody asked for ${action}`);
    this.say({ id: m["id"], error: { code, message } });
  }
}
