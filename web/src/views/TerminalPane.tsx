import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef } from "react";
import type { Piece } from "../live/terminal";
import { encode, terminalRoom } from "../live/terminal";
import { usePage, useTopic } from "../page";
import { Button } from "../ui/Button";
import { PhaseNote } from "../ui/PhaseNote";
import { defineTerminalSheet } from "./terminalSheet";

const settle = 150;
// One message takes at most 256 KiB; what is pasted goes in pieces.
const maxInput = 48 * 1024;

defineTerminalSheet();

const theme = { background: "#12151a", foreground: "#e6e9ef", cursor: "#84b4ff", selectionBackground: "#84b4ff55" };

/** A CLI agent in a terminal, which goes on at the byte where it was left. */
export function TerminalPane({ id, running }: { id: string; running: boolean }) {
  const { live } = usePage();
  const topic = "terminal:" + id;
  const view = useTopic(topic, terminalRoom, () => ({ after: live.view(topic, terminalRoom).state.offset }));
  const place = useRef<HTMLDivElement>(null);
  const leave = useRef<HTMLButtonElement>(null);
  const term = useRef<Terminal>(null);
  // What this terminal has been given: of which screen, and up to which piece.
  const drawn = useRef<{ screen: number; last: Piece | null }>({ screen: 0, last: null });

  useEffect(() => {
    const el = place.current;
    if (!el) return;
    const t = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono").trim() || "monospace",
      fontSize: 13, scrollback: 5_000, theme, cursorBlink: false, screenReaderMode: true, allowProposedApi: false,
    });
    const fit = new FitAddon();
    t.loadAddon(fit);
    t.open(el);
    term.current = t;
    drawn.current = { screen: live.view(topic, terminalRoom).state.screen, last: null };
    const send = (bytes: Uint8Array): void => {
      for (let i = 0; i < bytes.length; i += maxInput) {
        live.request("terminal.input", { session_id: id, data: encode(bytes.subarray(i, i + maxInput)) }).catch(() => undefined);
      }
    };
    const utf8 = new TextEncoder();
    t.onData((text) => send(utf8.encode(text)));
    t.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    // Tab belongs to the agent; without a way out the keyboard would be caught.
    t.attachCustomKeyEventHandler((e) => {
      if (e.key !== "F6") return true;
      if (e.type === "keydown") leave.current?.focus();
      return false;
    });
    let timer: ReturnType<typeof setTimeout> | undefined;
    t.onResize(({ cols, rows }) => {
      clearTimeout(timer);
      timer = setTimeout(() => void live.request("terminal.resize", { session_id: id, cols, rows }).catch(() => undefined), settle);
    });
    const sized = new ResizeObserver(() => fit.fit());
    sized.observe(el);
    const resend = live.onStatus(() => {
      if (live.status === "live") void live.request("terminal.resize", { session_id: id, cols: t.cols, rows: t.rows }).catch(() => undefined);
    });
    return () => {
      clearTimeout(timer);
      sized.disconnect();
      resend();
      t.dispose();
      term.current = null;
    };
  }, [id, live, topic]);

  const { pieces, screen } = view.state;
  useEffect(() => {
    const t = term.current;
    if (!t) return;
    if (drawn.current.screen !== screen) {
      t.reset();
      drawn.current = { screen, last: null };
    }
    const from = drawn.current.last ? pieces.lastIndexOf(drawn.current.last) + 1 : 0;
    for (const p of pieces.slice(from)) {
      if (p.modes) t.write(p.modes);
      t.write(p.bytes);
    }
    drawn.current.last = pieces.at(-1) ?? drawn.current.last;
  }, [pieces, screen]);

  return (
    <>
      {view.phase !== "live" && running && <PhaseNote view={view} topic={topic} what="the terminal" />}
      <div className="terminal" ref={place} role="group" aria-label={`Terminal of ${id}. F6 leaves it.`} />
      <div className="terminal-foot row">
        <span className="tiny muted grow" role="status">
          {view.state.ended || (running || view.state.running ? "F6 leaves the terminal." : "The agent does not run.")}
          {view.state.lost > 0 ? ` ${view.state.lost.toLocaleString("en")} bytes from before are no longer kept.` : ""}
        </span>
        <Button ref={leave} kind="quiet" onClick={() => term.current?.focus()}>
          Into the terminal
        </Button>
      </div>
    </>
  );
}
