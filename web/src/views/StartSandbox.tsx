import { useState } from "react";
import { message } from "../live/api";
import type { SandboxProfile } from "../live/wire";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Problem } from "../ui/Problem";

// A cluster may take its time before it says no.
const patience = 90_000;

/** Starts a sandbox of one of the daemon's kinds; the list then shows how its worker comes up. */
export function StartSandbox({ onClose }: { onClose: () => void }) {
  const { api, info } = usePage();
  const profiles = info?.sandbox_profiles ?? [];
  const [profile, setProfile] = useState(profiles.find((p) => p.name === "light")?.name ?? profiles[0]?.name ?? "");
  const [name, setName] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const chosen = profiles.find((p) => p.name === profile);
  const start = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await api.ask("POST", "/v1/sandboxes", { profile, ...(name.trim() ? { id: name.trim() } : {}) }, { timeout: patience });
      onClose();
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog open onClose={onClose} title="Start a sandbox" description="A worker with tools of its own, apart from this machine's files and network. It ends by itself when it was idle for long enough.">
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault();
          if (profile && !busy) void start();
        }}
      >
        <Field label="Profile" hint={chosen && driverWords(chosen)}>
          {(f) => (
            <select {...f} className="input" value={profile} onChange={(e) => setProfile(e.target.value)}>
              {profiles.map((p) => (
                <option key={p.name}>{p.name}</option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Name" hint="May be empty: the daemon then finds one">
          {(f) => <input {...f} className="input" value={name} onChange={(e) => setName(e.target.value)} spellCheck={false} autoComplete="off" />}
        </Field>
        {busy && (
          <p className="note row" role="status">
            <span className="spinner" aria-hidden="true" /> Starting. Some places take a while to make room.
          </p>
        )}
        <Problem text={error} />
        <div className="foot">
          <Button onClick={onClose}>Not now</Button>
          <Button type="submit" kind="primary" disabled={!profile} busy={busy}>
            Start
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function driverWords(p: SandboxProfile): string {
  switch (p.driver) {
    case "local":
      return p.tier ? `On the daemon's machine, kept in by ${p.tier}` : "On the daemon's machine, in the best sandbox that it can keep";
    case "kubernetes":
      return "A pod of a cluster";
    case "plain":
      return "On the daemon's machine, and not kept in: its commands can do what the daemon can";
  }
  return p.driver;
}
