import type { Room } from "./room";

export interface Piece {
  readonly offset: number; // of its first byte
  readonly bytes: Uint8Array;
  readonly modes?: Uint8Array; // for a cleared screen, before the bytes
}

export interface TerminalState {
  readonly offset: number; // of the next byte
  readonly pieces: readonly Piece[];
  readonly screen: number; // counts cleared screens; pieces are those of the newest
  readonly lost: number; // bytes that nobody keeps any more
  readonly cols: number;
  readonly rows: number;
  readonly running: boolean;
  readonly ended: string; // how, in words
}

/** Bytes that the page keeps, to draw a terminal anew. */
export const maxKept = 1 << 20;

interface Snapshot {
  offset?: number;
  lost?: number;
  cols?: number;
  rows?: number;
  running?: boolean;
}

interface Output {
  offset?: number;
  lost?: number;
  modes?: string;
  data?: string;
}

export const terminalRoom: Room<TerminalState> = {
  initial: { offset: 0, pieces: [], screen: 0, lost: 0, cols: 0, rows: 0, running: false, ended: "" },
  snapshot(old, data) {
    const s = data as Snapshot;
    const offset = s.offset ?? 0;
    const state = { ...old, cols: s.cols ?? 0, rows: s.rows ?? 0, running: s.running ?? false, ended: s.running ? "" : old.ended };
    // It goes on where this page was, or the screen begins anew: after a loss, or when
    // the agent was started again.
    return offset === old.offset ? state : cleared(state, offset, s.lost ?? 0);
  },
  pushes(old, pushes) {
    let s = old;
    for (const { action, data } of pushes) {
      if (action === "terminal.output") s = written(s, data as Output);
      else if (action === "terminal.exit") {
        const d = data as { code?: number; error?: string };
        s = { ...s, running: false, ended: d.error || (d.code === undefined ? "The agent has ended." : `The agent has ended with code ${d.code}.`) };
      }
    }
    return s === old ? old : { ...s, pieces: kept(s.pieces) };
  },
};

function written(s: TerminalState, d: Output): TerminalState {
  const offset = d.offset ?? s.offset;
  let bytes = decode(d.data ?? "");
  const modes = d.modes ? decode(d.modes) : undefined;
  if (d.lost || modes || offset > s.offset) s = cleared(s, offset, d.lost ?? Math.max(0, offset - s.offset));
  // What was had already is not drawn twice.
  const skip = s.offset - offset;
  if (skip > 0) bytes = bytes.subarray(skip);
  if (bytes.length === 0 && !modes) return s;
  return { ...s, offset: s.offset + bytes.length, pieces: [...s.pieces, { offset: s.offset, bytes, modes }] };
}

function cleared(s: TerminalState, offset: number, lost: number): TerminalState {
  return { ...s, offset, pieces: [], screen: s.screen + 1, lost: s.lost + lost };
}

function kept(pieces: readonly Piece[]): readonly Piece[] {
  let size = pieces.reduce((n, p) => n + p.bytes.length, 0);
  let from = 0;
  while (size > maxKept && from < pieces.length - 1) size -= pieces[from++]?.bytes.length ?? 0;
  return from ? pieces.slice(from) : pieces;
}

export function decode(base64: string): Uint8Array {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

export function encode(bytes: Uint8Array): string {
  let text = "";
  for (const b of bytes) text += String.fromCharCode(b);
  return btoa(text);
}
