import type { Room } from "./room";

export interface Piece {
  readonly offset: number; // of its first byte
  readonly bytes: Uint8Array;
}

export interface TerminalState {
  readonly offset: number; // of the next byte
  readonly pieces: readonly Piece[];
  readonly lost: number; // bytes that nobody keeps any more
  readonly cols: number;
  readonly rows: number;
  readonly running: boolean;
  readonly ended: string; // how, in words
  readonly asked: boolean; // there was a snapshot
}

/** Bytes that the page keeps, to draw a terminal anew. */
export const maxKept = 1 << 20;

export const terminalRoom: Room<TerminalState> = {
  initial: { offset: 0, pieces: [], lost: 0, cols: 0, rows: 0, running: false, ended: "", asked: false },
  snapshot(old, data) {
    const s = data as { offset?: number; lost?: number; cols?: number; rows?: number; running?: boolean };
    const lost = s.lost ?? 0;
    return {
      ...old,
      lost: old.lost + lost,
      cols: s.cols ?? 0,
      rows: s.rows ?? 0,
      running: s.running ?? false,
      ended: s.running ? "" : old.ended,
      asked: true,
    };
  },
  pushes(old, pushes) {
    let s = old;
    const added: Piece[] = [];
    for (const { action, data } of pushes) {
      if (action === "terminal.output") {
        const d = data as { offset?: number; data?: string };
        const piece = behind(s.offset, d.offset ?? s.offset, decode(d.data ?? ""));
        if (!piece) continue;
        added.push(piece);
        s = { ...s, offset: piece.offset + piece.bytes.length };
      } else if (action === "terminal.exit") {
        const d = data as { code?: number; error?: string };
        s = { ...s, running: false, ended: d.error || (d.code === undefined ? "The agent ended." : `The agent ended with code ${d.code}.`) };
      }
    }
    return added.length ? { ...s, pieces: kept([...s.pieces, ...added]) } : s;
  },
};

// What was had already is not drawn twice.
function behind(have: number, offset: number, bytes: Uint8Array): Piece | null {
  const skip = have - offset;
  if (skip <= 0) return bytes.length ? { offset, bytes } : null;
  if (skip >= bytes.length) return null;
  return { offset: have, bytes: bytes.subarray(skip) };
}

function kept(pieces: Piece[]): Piece[] {
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
