import type { PageInfo, SessionInfo } from "../live/wire";

/** Whether the session's agent is shown as a terminal. */
export function isTerminal(s: SessionInfo | null, page: PageInfo | null): boolean {
  if (!s) return false;
  if (s.engine) return s.engine === "passthrough";
  if (/^(passthrough|terminal|pty)\b/.test(s.agent?.protocol ?? "")) return true;
  return page?.profiles?.some((p) => p.name === s.meta.profile && p.engine === "passthrough") ?? false;
}
