import type { SessionInfo } from "../live/wire";
import { usePage } from "../page";
import { Dialog } from "../ui/Dialog";

/** Says what the configuration of a session's servers is, and where it lives. The page does not change it. */
export function McpSettings({ open, onClose, info }: { open: boolean; onClose: () => void; info: SessionInfo | null }) {
  const { info: page } = usePage();
  const profile = page?.profiles?.find((p) => p.name === info?.meta.profile);
  const injected = info?.agent?.injected ?? [];
  // What cannot be read is unknown: no list of servers stands in for it.
  const unknown = info?.meta.profile && !profile ? (page ? "unknown: the daemon's configuration has no profile of this name now" : "unknown: the daemon's configuration could not be read") : "";
  return (
    <Dialog open={open} onClose={onClose} title="MCP settings" description="What is configured. Whether the agent really has it is what the report says.">
      <dl className="facts">
        <dt>Profile</dt>
        <dd>{info?.meta.profile || "none: the session was started by a command or a model's URL"}</dd>
        {profile && (
          <>
            <dt>Agent</dt>
            <dd>{[profile.agent, profile.engine].filter(Boolean).join(" · ")}</dd>
            <dt>Servers of the profile</dt>
            <dd>{profile.servers?.length ? profile.servers.join(", ") : "none"}</dd>
          </>
        )}
        {unknown && (
          <>
            <dt>Servers of the profile</dt>
            <dd>{unknown}</dd>
          </>
        )}
        {injected.length > 0 && (
          <>
            <dt>Handed to the agent</dt>
            <dd>{injected.map((i) => `${i.server} (${i.transport || i.reason || "not handed over"})`).join(", ")}</dd>
          </>
        )}
      </dl>
      <p className="small">
        The servers stand under <code>mcpServers</code> and <code>profiles</code> in the configuration file of the daemon: the file of <code>--config</code>, else of <code>$OSSICLE_CONFIG</code>, else <code>~/.config/ossicle/config.yaml</code> on its machine. Servers that were given when a session was started are kept with the session.
      </p>
      <p className="small muted">A change of the file counts for sessions that are started after it. Secrets in it never reach this page.</p>
    </Dialog>
  );
}
