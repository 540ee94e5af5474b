import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { message, path } from "../live/api";
import type { SessionState } from "../live/session";
import type { Entry } from "../live/wire";
import { parse } from "../live/json";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { Asked } from "./Asked";
import { EntryRow } from "./EntryRow";
import { NowRows } from "./NowRows";
import { cutOff, estimate, shown } from "./rows";

const page = 500;
const nearEnd = 48;

/** What was said and done, of which only what is in sight is drawn. */
export function Transcript({ id, state, loading }: { id: string; state: SessionState; loading: boolean }) {
  // The daemon knows whether the last turn may still run, somewhere else too.
  const mayRun = (state.info?.running ?? true) || state.info?.trouble?.kind !== "turn_cut_off";
  const cut = useMemo(() => cutOff(state.entries, mayRun), [state.entries, mayRun]);
  const entries = useMemo(() => state.entries.filter((e) => shown(e) || cut.has(e.seq)), [state.entries, cut]);
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [behind, setBehind] = useState(false);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const rows = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: (i) => estimate(entries[i] as Entry),
    getItemKey: (i) => entries[i]?.seq ?? i,
    overscan: 8,
  });
  const looked = useRef<() => void>(() => undefined);
  const onOpen = useCallback((seq: number, isOpen: boolean) => {
    // What is opened stays under the hand: the end is followed again once it is in sight.
    if (isOpen) {
      atEnd.current = false;
      requestAnimationFrame(() => requestAnimationFrame(() => looked.current()));
    }
    setOpen((old) => {
      if (old.has(seq) === isOpen) return old;
      const next = new Set(old);
      if (isOpen) next.add(seq);
      else next.delete(seq);
      return next;
    });
  }, []);

  const toEnd = useCallback(() => {
    const el = scroller.current;
    if (el) el.scrollTop = el.scrollHeight;
  }, []);
  const onScroll = (): void => {
    const el = scroller.current;
    if (!el) return;
    atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < nearEnd;
    setBehind(!atEnd.current);
  };
  looked.current = onScroll;
  // Older entries that were put before the rest must not move what is in sight.
  const total = rows.getTotalSize();
  const was = useRef({ first: entries[0]?.seq, total });
  useLayoutEffect(() => {
    const first = entries[0]?.seq;
    const el = scroller.current;
    if (el && was.current.first !== undefined && first !== undefined && first < was.current.first) el.scrollTop += total - was.current.total;
    else if (atEnd.current) toEnd();
    was.current = { first, total };
  });
  useEffect(() => {
    const el = scroller.current;
    if (!el) return;
    const seen = new ResizeObserver(() => atEnd.current && toEnd());
    seen.observe(el);
    return () => seen.disconnect();
  }, [toEnd]);

  const quiet = entries.length === 0 && !state.now.text && state.now.tools.length === 0 && state.asked.length === 0;
  return (
    <div className="transcript" ref={scroller} onScroll={onScroll} tabIndex={0} role="region" aria-label="Transcript">
      {!state.first && entries.length > 0 && <Older id={id} before={state.entries[0]?.seq ?? 1} />}
      {quiet && !loading && (
        <Empty title="Nothing was said yet">
          <p>Write below. What the agent hears, says and does appears here.</p>
        </Empty>
      )}
      <div className="rows" role="list" aria-label="Entries" style={{ height: total }}>
        {rows.getVirtualItems().map((row) => {
          const e = entries[row.index];
          if (!e) return null;
          return (
            <div key={row.key} data-index={row.index} ref={rows.measureElement} className="place" role="listitem" aria-setsize={entries.length} aria-posinset={row.index + 1} style={{ transform: `translateY(${row.start}px)` }}>
              <EntryRow entry={e} open={open.has(e.seq)} onOpen={onOpen} cut={cut.has(e.seq)} />
            </div>
          );
        })}
      </div>
      <NowRows now={state.now} />
      {state.asked.map((q) => (
        <Asked key={q.id} session={id} question={q} />
      ))}
      {behind && (
        <div className="newest">
          <Button
            icon="down"
            onClick={() => {
              atEnd.current = true;
              setBehind(false);
              toEnd();
            }}
          >
            Newest
          </Button>
        </div>
      )}
      <Spoken entries={entries} />
    </div>
  );
}

function Older({ id, before }: { id: string; before: number }) {
  const { api, live } = usePage();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const load = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      const after = Math.max(0, before - 1 - page);
      const answer = await api.request("GET", `${path("sessions", id, "transcript")}?after=${after}&limit=${before - 1 - after}`);
      const lines = (await answer.text()).split("\n").filter(Boolean);
      live.apply("session:" + id, "session.older", { entries: lines.map((l) => parse(l)) });
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="entry system">
      <Button busy={busy} onClick={() => void load()}>
        {error ? `${error} Try again` : "Load what was before"}
      </Button>
    </div>
  );
}

/** Says to screen readers what the agent has said, once it is said. */
function Spoken({ entries }: { entries: readonly Entry[] }) {
  const last = entries.at(-1);
  const [from] = useState(last?.seq ?? 0);
  const said = last && last.seq > from && last.kind === "assistant" ? `Agent: ${(last.text ?? "").slice(0, 300)}` : "";
  return (
    <div className="unseen" role="status">
      {said}
    </div>
  );
}
