// Server-sent events over fetch. EventSource would dispatch events only to
// listeners that know their types by name, and those of the feed are anybody's.

export interface ServerEvent {
  id: string;
  type: string;
  data: string;
}

const maxFrame = 1 << 20;

/** Parses a stream piece by piece. A frame of more than 1 MiB is an error. */
export class SseParser {
  #rest = "";
  #data: string[] = [];
  #size = 0;
  #type = "";
  /** The id of the newest frame, also of one without data. */
  lastId = "";
  #id = "";
  retry: number | undefined;

  feed(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const text = this.#rest + piece;
    let at = 0;
    for (;;) {
      const end = lineEnd(text, at);
      if (end === null) break;
      this.#line(text.slice(at, end.at), events);
      at = end.next;
    }
    this.#rest = text.slice(at);
    if (this.#rest.length > maxFrame) throw new Error("a line of the event stream is too long");
    return events;
  }

  #line(line: string, events: ServerEvent[]): void {
    if (line === "") {
      this.lastId = this.#id;
      if (this.#data.length) events.push({ id: this.#id, type: this.#type || "message", data: this.#data.join("\n") });
      this.#data = [];
      this.#size = 0;
      this.#type = "";
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    switch (field) {
      case "data":
        this.#size += value.length;
        if (this.#size > maxFrame) throw new Error("an event of the stream is too long");
        this.#data.push(value);
        break;
      case "event":
        this.#type = value;
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "retry":
        if (/^\d+$/.test(value)) this.retry = Number(value);
        break;
    }
  }
}

// A carriage return at the end of what has come may be half of an end of line.
function lineEnd(text: string, from: number): { at: number; next: number } | null {
  for (let i = from; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 10) return { at: i, next: i + 1 };
    if (c === 13) {
      if (i + 1 >= text.length) return null;
      return { at: i, next: text.charCodeAt(i + 1) === 10 ? i + 2 : i + 1 };
    }
  }
  return null;
}
