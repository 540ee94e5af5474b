// The attachment report (schema_version 1) as the page reads it. Readers ignore
// what they do not know, and show conservatively what they cannot place.
import type { Maybe } from "./wire";

export interface Step {
  at: string;
  reason_code?: string;
  summary?: string;
  tool_count?: number;
  tool?: string;
  transport?: string;
}

export interface EndpointTest {
  tested_at: string;
  succeeded: boolean;
  reason_code?: string;
  summary?: string;
  tool_count?: number;
}

export interface CatalogueTool {
  name: string;
  description?: string;
}

export interface Catalogue {
  tools?: Maybe<CatalogueTool[]>;
  total?: number;
  digest?: string;
}

export interface Server {
  name: string;
  source?: string;
  transport?: string;
  target?: string;
  status: string;
  reason_code?: string;
  summary?: string;
  connection_id?: string;
  client?: { name?: string; version?: string; mcp_protocol_version?: string; era?: string };
  tool_count?: number;
  connected_at?: string;
  tools_listed_at?: string;
  last_used_at?: string;
  last_tool?: string;
  failed_at?: string;
  disconnected_at?: string;
  endpoint_test?: EndpointTest;
  tool_catalogue?: Catalogue;
  steps?: Maybe<Record<string, Step>>;
}

export interface Attempt {
  task_id?: string;
  session_id: string;
  execution_id: string;
  attachment_attempt_id: string;
  agent_id?: string;
  agent_profile_id?: string;
  acp_session_id?: string;
  started_at: string;
  updated_at: string;
  superseded_at?: string;
  session_accepted_at?: string;
  session_blocked_at?: string;
  late_traffic_at?: string;
  agent_ended_at?: string;
  servers?: Maybe<Server[]>;
  servers_truncated?: boolean;
  session_error?: Maybe<{ occurred_at: string; reason_code?: string; summary?: string }>;
}

export interface Report {
  schema_version: number;
  current_attachment_attempt_id?: string;
  attempts?: Maybe<Attempt[]>;
}

export function currentAttempt(r: Maybe<Report>): Attempt | undefined {
  if (!r?.current_attachment_attempt_id) return undefined;
  return r.attempts?.find((a) => a.attachment_attempt_id === r.current_attachment_attempt_id);
}

/** Compares two RFC 3339 times to the nanosecond: negative if a is before b. */
export function compareTimes(a: Maybe<string>, b: Maybe<string>): number {
  const [ma, na] = split(a);
  const [mb, nb] = split(b);
  return ma - mb || na - nb;
}

function split(t: Maybe<string>): [number, number] {
  const ms = t ? Date.parse(t) : NaN;
  if (!t || Number.isNaN(ms)) return [-Infinity, 0];
  const fraction = /\.(\d+)/.exec(t)?.[1] ?? "";
  return [Math.floor(ms / 1000), Number(fraction.padEnd(9, "0").slice(0, 9))];
}

/**
 * The newer of a report that came live and one that was read: the one that was
 * read only if it is strictly newer, so that equal keeps live.
 */
export function fresher(live: Maybe<Report>, read: Maybe<Report>): Report | null {
  if (!live) return read ?? null;
  if (!read) return live;
  return compareTimes(currentAttempt(read)?.updated_at, currentAttempt(live)?.updated_at) > 0 ? read : live;
}

/** Whether a report is of the session: none of another is ever shown. */
export function ofSession(r: Maybe<Report>, session: string): boolean {
  return !!r && (r.attempts ?? []).every((a) => a.session_id === session);
}

export type Tone = "green" | "amber" | "red" | "grey";

const statuses: Record<string, { label: string; tone: Tone }> = {
  active: { label: "Active", tone: "green" },
  connected: { label: "Connected", tone: "amber" },
  delivered: { label: "Delivered · connection unverified", tone: "amber" },
  failed: { label: "Failed", tone: "red" },
  filtered: { label: "Filtered", tone: "grey" },
  unavailable: { label: "Unavailable", tone: "grey" },
  unknown: { label: "Configured", tone: "grey" },
};

/** A status in words and as a colour; one that is not known is grey and shown as it is. */
export function statusOf(status: Maybe<string>): { label: string; tone: Tone } {
  if (!status) return { label: "Configured", tone: "grey" };
  return Object.hasOwn(statuses, status) ? (statuses[status] as { label: string; tone: Tone }) : { label: `Unknown (${status})`, tone: "grey" };
}

const reasons: Record<string, string> = {
  transport_unsupported_advertised: "the agent says that it does not take this transport",
  via_ossicle: "ossicle connects to it itself; the agent reaches it through the tools of ossicle",
  transport_unsupported_assumed: "the agent is not known to take this transport",
  policy_denied: "a policy leaves the server out",
  duplicate_name: "another server has the same name",
  no_passthrough_strategy: "ossicle does not know how this agent is given MCP servers",
  no_transport: "the configuration names no way to reach the server",
  command_not_found: "the command is not installed",
  materialize_failed: "the agent's configuration could not be written",
  spawn_failed: "the server's command could not be started",
  exited: "the server's process ended",
  connect_refused: "the server refused the connection",
  unreachable: "the server could not be reached",
  timeout: "the server did not answer in time",
  tls: "the secure connection failed",
  auth_required: "the server wants a login",
  http_status: "the server answered with an HTTP error",
  protocol_error: "the server answered against the protocol, or with an error",
  method_not_found: "the server does not have the method",
  agent_reported: "the agent says so",
  session_failed: "the agent did not open the session",
};

/** A reason in words; a code of a newer version is shown as it is. */
export function reasonText(code: Maybe<string>): string {
  if (!code) return "";
  return Object.hasOwn(reasons, code) ? (reasons[code] ?? code) : code;
}

export interface Check {
  key: string;
  label: string;
  at?: string;
  detail?: string;
}

/** The checklist of a server, in the order in which things happen. */
export function checklist(s: Server): Check[] {
  const step = (k: string): Step | undefined => s.steps?.[k];
  const connected = [step("initialize_observed"), step("discover_observed"), step("agent_reported_connected")].find((x) => x?.at)?.at;
  const filtered = step("server_filtered");
  const list: Check[] = [
    { key: "resolved", label: "Configured", at: step("server_resolved")?.at },
    filtered && !step("server_delivered")
      ? // What the row says above is not said again.
        { key: "filtered", label: "Left out", at: filtered.at, detail: filtered.reason_code === s.reason_code ? undefined : reasonText(filtered.reason_code) }
      : { key: "delivered", label: "Delivered to the agent", at: step("server_delivered")?.at ?? step("session_accepted")?.at },
    { key: "connected", label: "Agent connected", at: s.connected_at ?? connected },
    { key: "listed", label: "Tools listed", at: s.tools_listed_at, detail: s.tool_count === undefined ? undefined : count(s.tool_count, "tool") },
    { key: "used", label: "Used", at: s.last_used_at, detail: s.last_tool },
  ];
  if (s.failed_at) list.push({ key: "failed", label: s.status === "failed" ? "Failed" : "Failed before, cleared since", at: s.failed_at });
  if (s.disconnected_at) list.push({ key: "closed", label: "Connection closed", at: s.disconnected_at });
  return list;
}

export function count(n: number, noun: string): string {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}
