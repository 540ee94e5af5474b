import { useEffect, useState } from "react";
import { message, path } from "../live/api";
import type { DryRun, ServerResources } from "../live/wire";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import type { Outcome } from "./DryRunResult";
import { DryRunResult } from "./DryRunResult";
import { ResourcePicker } from "./ResourcePicker";

/** Starts a watch: what is watched, how it is told, and how that would look. */
export function StartWatch({ session: first, sessions, onClose }: { session: string; sessions: readonly string[]; onClose: () => void }) {
  const { api } = usePage();
  const [session, setSession] = useState(first);
  const [name, setName] = useState("");
  const [uri, setUri] = useState("");
  const [filter, setFilter] = useState("");
  const [busy, setBusy] = useState<"" | "try" | "start">("");
  const [outcome, setOutcome] = useState<Outcome>(null);
  const [servers, setServers] = useState<ServerResources[] | string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    setServers(null);
    api.ask<{ servers?: ServerResources[] | null }>("GET", path("sessions", session, "resources"), undefined, { signal: stop.signal }).then(
      (r) => setServers(r.servers ?? []),
      (e: unknown) => !stop.signal.aborted && setServers(message(e)),
    );
    return () => stop.abort();
  }, [api, session]);

  const run = async (what: "try" | "start"): Promise<void> => {
    setBusy(what);
    setOutcome(null);
    try {
      if (what === "try") {
        setOutcome({ result: await api.ask<DryRun>("POST", path("sessions", session, "watches", "dry-run"), { uri, on_event: filter }) });
      } else {
        await api.ask("POST", path("sessions", session, "watches"), { name: name.trim(), uri, on_event: filter });
        onClose();
      }
    } catch (e) {
      setOutcome({ error: message(e) });
    } finally {
      setBusy("");
    }
  };
  return (
    <Dialog open onClose={onClose} wide title="Start a watch" description="The agent is told when the resource changes, by a notice in its inbox.">
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault();
          if (name.trim() && uri && !busy) void run("start");
        }}
      >
        {sessions.length > 1 && (
          <Field label="Session">
            {(f) => (
              <select {...f} className="input" value={session} onChange={(e) => setSession(e.target.value)}>
                {sessions.map((s) => (
                  <option key={s}>{s}</option>
                ))}
              </select>
            )}
          </Field>
        )}
        <Field label="Name" hint="Short; it is how the agent speaks of the watch">
          {(f) => <input {...f} className="input" value={name} onChange={(e) => setName(e.target.value)} autoComplete="off" spellCheck={false} />}
        </Field>
        <Field label="URI" hint="Of a resource of one of the session's servers; choose one below, or write it">
          {(f) => (
            <input
              {...f}
              className="input mono"
              value={uri}
              onChange={(e) => {
                setUri(e.target.value.trim());
                setOutcome(null);
              }}
              autoComplete="off"
              spellCheck={false}
            />
          )}
        </Field>
        <ResourcePicker
          servers={servers}
          chosen={uri}
          onChoose={(u) => {
            setUri(u);
            setOutcome(null);
          }}
        />
        <Field label="Filter (Python; may be empty)" hint="Its last expression is the line that is told, or None for nothing. Without a filter every change is told in one line.">
          {(f) => (
            <textarea
              {...f}
              className="input mono"
              value={filter}
              placeholder={'event["type"] + " " + event["key"]'}
              onChange={(e) => {
                setFilter(e.target.value);
                setOutcome(null);
              }}
              autoComplete="off"
              spellCheck={false}
            />
          )}
        </Field>
        <DryRunResult outcome={outcome} busy={{ try: "Trying the filter on samples, and on the resource as it is now…", start: "Starting the watch…", "": "" }[busy]} />
        <div className="foot">
          <Button busy={busy === "try"} disabled={!uri || busy !== ""} onClick={() => void run("try")}>
            Try the filter
          </Button>
          <Button type="submit" kind="primary" busy={busy === "start"} disabled={!name.trim() || !uri || busy !== ""}>
            Start
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
