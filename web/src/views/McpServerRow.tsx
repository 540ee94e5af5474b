import type { Server } from "../live/report";
import { checklist, count, reasonText, statusOf } from "../live/report";
import { Badge } from "../ui/Badge";
import { Time } from "../ui/Time";
import type { EndpointTests } from "./EndpointTest";
import { EndpointTest } from "./EndpointTest";

const transports: Record<string, string> = { in_process: "in ossicle itself" };
const sources: Record<string, string> = { builtin: "ossicle's own", profile: "from the profile", agent: "the agent's own" };

/** One server: what was seen of it, with a colour, in words, and as a list of steps. */
export function McpServerRow({ tests, server: s }: { tests: EndpointTests; server: Server }) {
  const { label, tone } = statusOf(s.status);
  const catalogue = s.tool_catalogue?.tools ?? [];
  return (
    <li className={`server ${tone}`}>
      <div className="row top spread flow">
        <span className="name">{s.name}</span>
        <Badge tone={tone}>{label}</Badge>
      </div>
      <p className="tiny muted wrap">{[s.source && (sources[s.source] ?? s.source), s.transport && (transports[s.transport] ?? s.transport), s.target].filter(Boolean).join(" · ")}</p>
      {(s.reason_code || s.summary) && (
        <p className="small wrap">
          {reasonText(s.reason_code)}
          {s.reason_code && s.summary ? ": " : ""}
          {s.summary}
        </p>
      )}
      <ul className="checks" aria-label={`What was seen of ${s.name}`}>
        {checklist(s).map((c) => {
          const bad = c.key === "failed" || c.key === "filtered" || c.key === "closed";
          const mark = !c.at || c.key === "filtered" ? "" : bad ? "no" : "yes"; // grey: left out is no failure
          return (
            <li key={c.key}>
              <span className={`mark ${mark}`} aria-hidden="true">
                {c.at ? (bad ? "!" : "✓") : "–"}
              </span>
              <span className={c.at ? "wrap" : "not"}>
                {c.label}
                {c.detail ? ` · ${c.detail}` : ""}
                {!c.at && <span className="unseen"> (not seen)</span>}
              </span>
              <span>{c.at ? <Time at={c.at} /> : <span className="tiny muted" aria-hidden="true">not seen</span>}</span>
            </li>
          );
        })}
      </ul>
      {s.client?.name && (
        <p className="tiny muted wrap">
          Client {s.client.name} {s.client.version} {s.client.mcp_protocol_version ? `· MCP ${s.client.mcp_protocol_version}` : ""}
        </p>
      )}
      {catalogue.length > 0 && (
        <details className="small">
          <summary>{count(s.tool_catalogue?.total ?? catalogue.length, "tool")}</summary>
          <ul className="inner tiny">
            {catalogue.map((t) => (
              <li key={t.name} className="wrap">
                <code>{t.name}</code> {t.description?.split("\n")[0]}
              </li>
            ))}
          </ul>
        </details>
      )}
      <EndpointTest tests={tests} server={s} />
    </li>
  );
}
