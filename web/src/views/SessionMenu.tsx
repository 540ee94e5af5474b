import { DropdownMenu } from "radix-ui";
import { useState } from "react";
import { message, path } from "../live/api";
import type { SessionInfo } from "../live/wire";
import { usePage } from "../page";
import { IconButton } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Problem } from "../ui/Problem";

interface Props {
  id: string;
  info: SessionInfo | null;
  onAsk: (what: "reset" | "stop" | "remove") => void;
}

export function SessionMenu({ id, info, onAsk }: Props) {
  const { api } = usePage();
  const [error, setError] = useState("");
  const running = info?.running ?? false;
  // A link cannot carry the token: the transcript is fetched, and saved as a file.
  const save = async (): Promise<void> => {
    try {
      const answer = await api.request("GET", path("sessions", id, "transcript"), undefined, { timeout: 120_000 });
      const url = URL.createObjectURL(await answer.blob());
      const a = document.createElement("a");
      a.href = url;
      a.download = id.replace(/[^A-Za-z0-9_.-]+/g, "-") + ".ndjson";
      a.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch (e) {
      setError(message(e));
    }
  };
  const again = async (): Promise<void> => {
    try {
      await api.ask("POST", "/v1/sessions", { id, profile: info?.meta.profile }, { timeout: 90_000 });
    } catch (e) {
      setError(message(e));
    }
  };
  return (
    <>
      <DropdownMenu.Root modal={false}>
        <DropdownMenu.Trigger asChild>
          <IconButton icon="more" label="More about this session" />
        </DropdownMenu.Trigger>
        {/* Not moved to the end of the page: it belongs to its landmark. */}
          <DropdownMenu.Content className="menu" align="end" sideOffset={4}>
            <DropdownMenu.Item className="menu-item" onSelect={() => void save()}>
              Export the transcript
            </DropdownMenu.Item>
            {running && (
              <DropdownMenu.Item className="menu-item" onSelect={() => onAsk("reset")}>
                Reset the context…
              </DropdownMenu.Item>
            )}
            {running && (
              <DropdownMenu.Item className="menu-item" onSelect={() => onAsk("stop")}>
                Stop…
              </DropdownMenu.Item>
            )}
            {info && !running && info.meta.profile && (
              <DropdownMenu.Item className="menu-item" onSelect={() => void again()}>
                Start again
              </DropdownMenu.Item>
            )}
            <DropdownMenu.Item className="menu-item red" onSelect={() => onAsk("remove")}>
              Remove…
            </DropdownMenu.Item>
          </DropdownMenu.Content>
      </DropdownMenu.Root>
      <Dialog open={error !== ""} onClose={() => setError("")} title="That did not work">
        <Problem text={error} />
      </Dialog>
    </>
  );
}
