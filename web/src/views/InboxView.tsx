import { useMemo, useState } from "react";
import { message } from "../live/api";
import { inboxRoom, noticeStates, noticeWords } from "../live/inbox";
import type { Notice } from "../live/wire";
import { usePage, useTopic } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { Field } from "../ui/Field";
import { PhaseNote } from "../ui/PhaseNote";
import { Problem } from "../ui/Problem";
import { Time } from "../ui/Time";
import { NoticeRow } from "./NoticeRow";

const sources = ["watch", "signal", "feed", "worker", "system"];

/** Notices, and how far each came on its way to its agent. */
export function InboxView() {
  const { api, live } = usePage();
  const view = useTopic("inbox", inboxRoom);
  const [agent, setAgent] = useState("");
  const [state, setState] = useState("");
  const [source, setSource] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const { notices, agents, next } = view.state;
  const shown = useMemo(() => notices.filter((n) => (!agent || n.agent === agent) && (!state || n.state === state) && (!source || n.source === source)), [notices, agent, state, source]);
  const older = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      const page = await api.ask<{ notices: Notice[] | null; next?: string }>("GET", `/v1/inbox?after=${encodeURIComponent(next)}&limit=100`);
      live.apply("inbox", "inbox.older", page);
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  const held = agents.filter((a) => a.hold?.reason);
  return (
    <div className="view">
      <div className="head">
        <h1 className="grow">Inbox</h1>
        {view.phase !== "failed" && view.phase !== "loading" && <span className="tiny muted">{agents.reduce((n, a) => n + a.pending, 0)} waiting</span>}
      </div>
      <div className="body" tabIndex={0} role="region" aria-label="Notices">
        <div className="page">
          <PhaseNote view={view} topic="inbox" what="the inbox" />
          {held.map((a) => (
            <p className="note amber" key={a.agent}>
              No turn is begun for <strong>{a.agent}</strong>: {a.hold?.reason} (since <Time at={a.hold?.at} />). Its notices wait for the next message of a person.
            </p>
          ))}
          {(notices.length > 0 || agents.length > 0) && (
            <div className="filters">
              <Select label="Agent" value={agent} onChange={setAgent} all="all agents" options={agents.map((a) => a.agent)} />
              <Select label="State" value={state} onChange={setState} all="every state" options={noticeStates} name={(s) => noticeWords(s).label} />
              <Select label="From" value={source} onChange={setSource} all="every source" options={sources} />
            </div>
          )}
          {shown.length > 0 && (
            <div className="card list">
              {shown.map((n) => (
                <NoticeRow key={n.id} notice={n} />
              ))}
            </div>
          )}
          {view.phase === "live" && shown.length === 0 && (
            <Empty title={notices.length ? "Nothing fits" : "The inbox is empty"}>
              <p>{notices.length ? "Other notices are here; change what is asked for above." : "What watches, signals, topics and workers tell agents lies here until it was seen."}</p>
            </Empty>
          )}
          <Problem text={error} />
          {next && (
            <div>
              <Button busy={busy} onClick={() => void older()}>
                Load older ones
              </Button>
            </div>
          )}
        </div>
      </div>
    </div>
  );
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
