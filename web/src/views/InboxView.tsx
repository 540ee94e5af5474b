import { useCallback, useEffect, useMemo, useState } from "react";
import { message } from "../live/api";
import type { Filter } from "../live/inbox";
import { everything, inboxRoom, noticeStates, noticeWords, sameFilter } from "../live/inbox";
import { count } from "../live/report";
import { usePage, useTopic } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { Field } from "../ui/Field";
import { PhaseNote } from "../ui/PhaseNote";
import { Time } from "../ui/Time";
import { NoticeRow } from "./NoticeRow";

const sources = ["watch", "signal", "feed", "worker", "system"];
const pageSize = 100;

/** Notices, and how far each came on its way to its agent. */
export function InboxView() {
  const view = useTopic("inbox", inboxRoom);
  const [agent, setAgent] = useState("");
  const [state, setState] = useState("");
  const [source, setSource] = useState("");
  const filter = useMemo(() => ({ agent, state, source }), [agent, state, source]);
  const { all, agents } = view.state;
  const filtered = !sameFilter(filter, everything);
  const { found } = view.state;
  const list = !filtered ? all : found && sameFilter(found.filter, filter) ? found : null;
  const { busy, error, load } = useFound(filter, view.phase === "live" && filtered && list !== null && !list.loaded);
  const reached = view.phase !== "failed" && view.phase !== "loading";
  const held = agents.filter((a) => a.hold?.reason);
  const notices = list?.notices ?? [];
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Inbox</h1>
        {reached && <span className="tiny muted">{agents.reduce((n, a) => n + a.pending, 0)} waiting</span>}
      </div>
      <div className="body" tabIndex={0} role="region" aria-label="Notices">
        <div className="page">
          <PhaseNote view={view} topic="inbox" what="the inbox" />
          {held.map((a) => (
            <p className="note amber" key={a.agent}>
              No turn is begun for <strong>{a.agent}</strong>: {a.hold?.reason} (since <Time at={a.hold?.at} />). Its notices wait for the next message of a person.
            </p>
          ))}
          {(all.notices.length > 0 || agents.length > 0) && (
            <div className="filters">
              <Select label="Agent" value={agent} onChange={setAgent} all="all" options={agents.map((a) => a.agent)} />
              <Select label="State" value={state} onChange={setState} all="every" options={noticeStates} name={(s) => noticeWords(s).label} />
              <Select label="From" value={source} onChange={setSource} all="every" options={sources} />
            </div>
          )}
          {filtered && reached && (
            <p className={list?.loaded && notices.length === 0 ? "unseen" : "tiny muted"} role="status">
              {error ? "" : list?.loaded ? `${count(notices.length, "notice")} that ${notices.length === 1 ? "fits" : "fit"}, of all that the daemon keeps${list.next ? "; there are older ones" : ""}.` : "Asking the daemon for what fits…"}
            </p>
          )}
          {notices.length > 0 && (
            <div className="card list">
              {notices.map((n) => (
                <NoticeRow key={n.id} notice={n} />
              ))}
            </div>
          )}
          {view.phase === "live" && list?.loaded && notices.length === 0 && (
            <Empty title={filtered ? (list.next ? "Nothing that fits so far" : "Nothing fits") : "The inbox is empty"}>
              <p>
                {filtered
                  ? list.next
                    ? "The daemon has looked through its newest notices; there are older ones."
                    : "No notice that the daemon keeps is like that."
                  : "What watches, signals, topics and workers tell agents lies here until it was seen."}
              </p>
              {filtered ? (
                <Button
                  onClick={() => {
                    setAgent("");
                    setState("");
                    setSource("");
                  }}
                >
                  Show all notices
                </Button>
              ) : (
                <a className="button" href="#/watches">
                  Watches
                </a>
              )}
            </Empty>
          )}
          {error && (
            <div className="note red row flow" role="alert">
              <span className="grow">{error}</span>
              <Button busy={busy} onClick={() => load(list?.loaded ? list.next : "")}>
                Try again
              </Button>
            </div>
          )}
          {list?.loaded && list.next && !error && (
            <div>
              <Button busy={busy} onClick={() => load(list.next)}>
                Load older ones
              </Button>
            </div>
          )}
        </div>
      </div>
    </div>
  );
}

// Asks the daemon for what a filter finds: the first page when it is due, further ones
// when they are wanted.
function useFound(filter: Filter, due: boolean): { busy: boolean; error: string; load: (after: string) => void } {
  const { api, live } = usePage();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const ask = useCallback(
    async (after: string, signal?: AbortSignal): Promise<void> => {
      setBusy(true);
      setError("");
      const query = new URLSearchParams({ limit: String(pageSize) });
      for (const [k, v] of Object.entries({ ...filter, after })) if (v) query.set(k, v);
      try {
        const page = await api.ask("GET", `/v1/inbox?${query}`, undefined, { signal });
        if (!signal?.aborted) live.apply("inbox", "inbox.page", { filter, after, page });
      } catch (e) {
        if (!signal?.aborted) setError(message(e));
      } finally {
        if (!signal?.aborted) setBusy(false);
      }
    },
    [api, live, filter],
  );
  useEffect(() => {
    setBusy(false);
    setError("");
    live.apply("inbox", "inbox.find", { filter });
  }, [live, filter]);
  useEffect(() => {
    if (!due) return;
    const stop = new AbortController();
    void ask("", stop.signal);
    return () => stop.abort();
  }, [ask, due]);
  return { busy, error, load: (after) => void ask(after) };
}

function Select({ label, value, onChange, all, options, name = (s) => s }: { label: string; value: string; onChange: (v: string) => void; all: string; options: readonly string[]; name?: (s: string) => string }) {
  return (
    <Field label={label}>
      {(f) => (
        <select {...f} className="input" value={value} onChange={(e) => onChange(e.target.value)}>
          <option value="">{all}</option>
          {options.map((o) => (
            <option key={o} value={o}>
              {name(o)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
