import { useState } from "react";
import { message } from "../live/api";
import type { EndpointTest as Result, Server } from "../live/report";
import { compareTimes, count, reasonText } from "../live/report";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Time } from "../ui/Time";

// The daemon gives up after 15 s.
const patience = 25_000;

/** Asks the daemon whether it can reach the server. That says nothing about the agent. */
export function EndpointTest({ session, server }: { session: string; server: Server }) {
  const { live } = usePage();
  const [busy, setBusy] = useState(false);
  const [own, setOwn] = useState<Result | null>(null);
  const [error, setError] = useState("");
  const stored = server.endpoint_test;
  const result = stored && (!own || compareTimes(stored.tested_at, own.tested_at) >= 0) ? stored : own;
  const test = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      setOwn((await live.request("session.mcp_test_endpoint", { session_id: session, server_name: server.name }, patience)) as Result);
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="row flow test">
      <Button busy={busy} onClick={() => void test()} aria-label={`Test endpoint of ${server.name}`}>
        Test endpoint
      </Button>
      <span className="tiny grow wrap" role="status">
        {busy ? "Reaching for it from here; at most 15 s…" : error ? <span className="red-text">{error}</span> : result && <Outcome result={result} />}
      </span>
    </div>
  );
}

function Outcome({ result: r }: { result: Result }) {
  return (
    <>
      {r.succeeded ? `Reachable from here${r.tool_count === undefined ? "" : `, ${count(r.tool_count, "tool")}`}` : `Not reachable from here${r.reason_code ? `: ${reasonText(r.reason_code)}` : ""}${r.summary ? ` (${r.summary})` : ""}`}
      {" · "}
      <Time at={r.tested_at} />. <span className="muted">This does not say what the agent does.</span>
    </>
  );
}
