import { useCallback, useState } from "react";
import { message } from "../live/api";
import type { EndpointTest as Result, Server } from "../live/report";
import { compareTimes, count, reasonText } from "../live/report";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Time } from "../ui/Time";

// The daemon gives up after 15 s.
const patience = 25_000;

/** The endpoint tests of a session: one at a time, as the daemon has it, and what came of each. */
export interface EndpointTests {
  readonly running: string; // the server that is being tested, empty for none
  readonly results: ReadonlyMap<string, { result?: Result; error?: string }>;
  readonly test: (server: string) => void;
}

/** Lives beside the plug, not in what it opens: a test goes on when that is closed. */
export function useEndpointTests(session: string): EndpointTests {
  const { live } = usePage();
  const [running, setRunning] = useState("");
  const [results, setResults] = useState<EndpointTests["results"]>(new Map());
  const test = useCallback(
    (server: string): void => {
      const done = (r: { result?: Result; error?: string }): void => {
        setResults((all) => new Map(all).set(server, r));
        setRunning("");
      };
      setRunning(server);
      live.request("session.mcp_test_endpoint", { session_id: session, server_name: server }, patience).then(
        (r) => done({ result: r as Result }),
        (e: unknown) => done({ error: message(e) }),
      );
    },
    [live, session],
  );
  return { running, results, test };
}

/** Asks the daemon whether it can reach the server. That says nothing about the agent. */
export function EndpointTest({ tests, server }: { tests: EndpointTests; server: Server }) {
  const busy = tests.running === server.name;
  const other = tests.running !== "" && !busy;
  const { result: own, error } = tests.results.get(server.name) ?? {};
  const stored = server.endpoint_test;
  const result = stored && (!own || compareTimes(stored.tested_at, own.tested_at) >= 0) ? stored : own;
  return (
    <div className="row flow test">
      <Button busy={busy} disabled={other} onClick={() => tests.test(server.name)} aria-label={`Test endpoint of ${server.name}`}>
        Test endpoint
      </Button>
      <span className="tiny grow wrap">
        {/* How long ago it was changes, and is not to be spoken whenever it does. */}
        <span role="status">{busy ? "Reaching for it from here; at most 15 s…" : error ? <span className="red-text">{error}</span> : result && outcome(result)}</span>
        {!busy && !error && result && (
          <>
            {" · "}
            <Time at={result.tested_at} />. <span className="muted">This does not say what the agent does.</span>
          </>
        )}
      </span>
      {other && <span className="tiny muted wrap">{tests.running} is being tested; one at a time.</span>}
    </div>
  );
}

function outcome(r: Result): string {
  return r.succeeded ? `Reachable from here${r.tool_count === undefined ? "" : `, ${count(r.tool_count, "tool")}`}` : `Not reachable from here${r.reason_code ? `: ${reasonText(r.reason_code)}` : ""}${r.summary ? ` (${r.summary})` : ""}`;
}
