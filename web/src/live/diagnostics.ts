// What is copied for somebody else to read. It is built from the report alone,
// member by member: what is not named here cannot come out, whatever a newer daemon,
// an agent or a server puts into a report.
import type { Attempt, Report, Server } from "./report";
import { currentAttempt, statusOf } from "./report";

const maxText = 256;
const maxServers = 30;

export function diagnostics(r: Report): string {
  const attempt = currentAttempt(r);
  const out = {
    what: "ossicle MCP attachment diagnostics",
    schema_version: Number(r.schema_version) || 0,
    attempts_kept: r.attempts?.length ?? 0,
    current: attempt ? attemptOut(attempt) : null,
  };
  return JSON.stringify(out, null, 2) + "\n";
}

function attemptOut(a: Attempt): object {
  return {
    session_id: id(a.session_id),
    execution_id: id(a.execution_id),
    attachment_attempt_id: id(a.attachment_attempt_id),
    agent_id: id(a.agent_id),
    started_at: time(a.started_at),
    updated_at: time(a.updated_at),
    session_accepted_at: time(a.session_accepted_at),
    session_blocked_at: time(a.session_blocked_at),
    session_error: a.session_error ? { occurred_at: time(a.session_error.occurred_at), reason_code: code(a.session_error.reason_code), summary: text(a.session_error.summary) } : undefined,
    servers_truncated: a.servers_truncated === true || undefined,
    servers: (a.servers ?? []).slice(0, maxServers).map(serverOut),
  };
}

function serverOut(s: Server): object {
  const t = s.endpoint_test;
  const steps = Object.entries(s.steps ?? {}).filter(([kind]) => code(kind) !== undefined);
  return {
    name: name(s.name),
    source: code(s.source),
    transport: code(s.transport),
    target: target(s.target),
    status: code(s.status),
    shown_as: statusOf(code(s.status)).label,
    reason_code: code(s.reason_code),
    summary: text(s.summary),
    client: s.client ? { name: name(s.client.name), version: name(s.client.version), mcp_protocol_version: name(s.client.mcp_protocol_version), era: code(s.client.era) } : undefined,
    tool_count: number(s.tool_count),
    connected_at: time(s.connected_at),
    tools_listed_at: time(s.tools_listed_at),
    last_used_at: time(s.last_used_at),
    failed_at: time(s.failed_at),
    disconnected_at: time(s.disconnected_at),
    endpoint_test: t ? { tested_at: time(t.tested_at), succeeded: t.succeeded === true, reason_code: code(t.reason_code), summary: text(t.summary), tool_count: number(t.tool_count) } : undefined,
    steps: steps.length ? Object.fromEntries(steps.map(([kind, step]) => [kind, time(step?.at)])) : undefined,
  };
}

function code(v: unknown): string | undefined {
  return typeof v === "string" && /^[a-z0-9_]{1,64}$/.test(v) ? v : undefined;
}

function id(v: unknown): string | undefined {
  return typeof v === "string" && /^[A-Za-z0-9_.:-]{1,128}$/.test(v) ? v : undefined;
}

function number(v: unknown): number | undefined {
  return typeof v === "number" && Number.isFinite(v) ? v : undefined;
}

function time(v: unknown): string | undefined {
  return typeof v === "string" && /^\d{4}-\d\d-\d\dT[\d:.]{8,24}(Z|[+-]\d\d:\d\d)$/.test(v) ? v : undefined;
}

function name(v: unknown): string | undefined {
  return typeof v === "string" && v !== "" ? clean(v).slice(0, 128) : undefined;
}

/** Of a network target scheme, host and port are kept; of a command its base name. */
function target(v: unknown): string | undefined {
  if (typeof v !== "string" || v === "") return undefined;
  if (!v.includes("://")) return clean(v.split(/[\s]/)[0]?.split(/[/\\]/).at(-1) ?? "").slice(0, 128);
  return origin(v);
}

function origin(v: string): string {
  try {
    const u = new URL(v);
    return `${u.protocol}//${u.host}`;
  } catch {
    return "(left out)";
  }
}

/** A text of an error, without what may be a secret. */
export function text(v: unknown): string | undefined {
  if (typeof v !== "string" || v === "") return undefined;
  const safe = clean(v);
  return safe.length > maxText ? safe.slice(0, maxText) + "…" : safe;
}

// The daemon has done this already, and better: it knows the configuration. A copy
// leaves the machine, so it is done once more.
function clean(v: string): string {
  return v
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]+/g, " ")
    .replace(/\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi, origin)
    .replace(/\b(bearer|basic|token)\s+[^\s,;"']{4,}/gi, "$1 (left out)")
    .replace(/\b([\w-]*(?:key|token|secret|passwor[dt]|passwd|pwd|auth\w*|cookie|credential\w*|session))(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&]+)/gi, "$1$2(left out)")
    .replace(/\b(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|AKIA|AIza|eyJ)[-_A-Za-z0-9.]{8,}/g, "(left out)")
    .replace(/\b(?=[A-Za-z0-9+/_=-]*\d)[A-Za-z0-9+/_=-]{24,}/g, "(left out)")
    .trim();
}
