import { useState } from "react";
import { message } from "../live/api";
import { splitCommand } from "../live/words";
import type { SessionInfo } from "../live/wire";
import { usePage } from "../page";
import { go } from "../route";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Field";
import { Problem } from "../ui/Problem";

type By = "profile" | "agent" | "model";

// Starting an agent may take a minute: it loads its servers before it answers.
const patience = 90_000;

function freeId(base: string, taken: readonly string[]): string {
  const clean = base.replace(/[^A-Za-z0-9_.-]+/g, "-").slice(0, 40) || "session";
  for (let n = 1; ; n++) {
    const id = n === 1 ? clean : `${clean}-${n}`;
    if (!taken.includes(id)) return id;
  }
}

export function NewSession({ onClose, taken }: { onClose: () => void; taken: readonly string[] }) {
  const { api, info } = usePage();
  const profiles = info?.profiles ?? [];
  const [by, setBy] = useState<By>(profiles.length > 0 ? "profile" : "agent");
  const [profile, setProfile] = useState(profiles[0]?.name ?? "");
  const [command, setCommand] = useState("");
  const [url, setUrl] = useState("");
  const [model, setModel] = useState("");
  const [dir, setDir] = useState("");
  const [name, setName] = useState("");
  const [policy, setPolicy] = useState("");
  const [cli, setCli] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const chosen = profiles.find((p) => p.name === profile);
  const words = splitCommand(command);
  const base = by === "profile" ? profile : by === "agent" ? (words?.[0]?.split("/").at(-1) ?? "agent") : model || "chat";
  const id = name.trim() || freeId(base, taken);
  const named = by === "profile" ? profile !== "" : by === "agent" ? (words?.length ?? 0) > 0 : url.trim() !== "";
  // A daemon has no directory of its own to fall back on.
  const placeless = by !== "profile" || !chosen?.dir;
  const ready = named && (!placeless || dir.trim() !== "");
  const directory = (
    <Field label="Directory" hint={placeless ? "Where the agent works; absolute" : `Absolute; empty: ${chosen?.dir}`}>
      {(f) => <input {...f} className="input mono" value={dir} placeholder={chosen?.dir} onChange={(e) => setDir(e.target.value)} spellCheck={false} autoComplete="off" />}
    </Field>
  );

  const start = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      const body = {
        id,
        ...(by === "profile" ? { profile } : by === "agent" ? { agent: words, ...(cli ? { passthrough: true } : {}) } : { model: { url: url.trim(), ...(model.trim() ? { name: model.trim() } : {}) } }),
        ...(dir.trim() ? { dir: dir.trim() } : {}),
        ...(policy ? { policy } : {}),
      };
      const s = await api.ask<SessionInfo>("POST", "/v1/sessions", body, { timeout: patience });
      onClose();
      go("sessions", s.meta.id);
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };

  return (
    <Dialog open onClose={onClose} title="New session" description="Starts an agent on the daemon's machine. It is asked before it uses tools, unless the policy says otherwise.">
      <form
        className="stack"
        onSubmit={(e) => {
          e.preventDefault();
          if (ready && !busy) void start();
        }}
      >
        <Field label="Start">
          {(f) => (
            <select {...f} className="input" value={by} onChange={(e) => setBy(e.target.value as By)}>
              {profiles.length > 0 && <option value="profile">A profile</option>}
              <option value="agent">An agent, by its command</option>
              <option value="model">A model, by its URL</option>
            </select>
          )}
        </Field>
        {by === "profile" && (
          <Field label="Profile" hint={chosen && [chosen.agent, chosen.engine, chosen.servers?.length ? `servers: ${chosen.servers.join(", ")}` : "no servers of its own", chosen.sandbox].filter(Boolean).join(" · ")}>
            {(f) => (
              <select {...f} className="input" value={profile} onChange={(e) => setProfile(e.target.value)}>
                {profiles.map((p) => (
                  <option key={p.name}>{p.name}</option>
                ))}
              </select>
            )}
          </Field>
        )}
        {by === "agent" && (
          <>
            <Field label="Command" hint={words === null ? "A quote is not closed." : cli ? "A CLI agent, for instance claude" : "An agent that speaks the Agent Client Protocol, for instance codex-acp"}>
              {(f) => <input {...f} className="input mono" value={command} onChange={(e) => setCommand(e.target.value)} spellCheck={false} autoComplete="off" aria-invalid={words === null} />}
            </Field>
            <label className="row small">
              <input type="checkbox" checked={cli} onChange={(e) => setCli(e.target.checked)} /> It has a screen of its own: show it in a terminal
            </label>
          </>
        )}
        {by === "model" && (
          <>
            <Field label="URL" hint="A server with the chat completions API, for instance http://127.0.0.1:11434">
              {(f) => <input {...f} className="input mono" type="url" value={url} onChange={(e) => setUrl(e.target.value)} spellCheck={false} autoComplete="off" />}
            </Field>
            <Field label="Model">{(f) => <input {...f} className="input mono" value={model} onChange={(e) => setModel(e.target.value)} spellCheck={false} autoComplete="off" />}</Field>
          </>
        )}
        {placeless && directory}
        <Field label="Name">{(f) => <input {...f} className="input" value={name} placeholder={id} onChange={(e) => setName(e.target.value)} spellCheck={false} autoComplete="off" />}</Field>
        <details>
          <summary className="small">More</summary>
          <div className="stack inner">
            {!placeless && directory}
            <Field label="When the agent asks for permission">
              {(f) => (
                <select {...f} className="input" value={policy} onChange={(e) => setPolicy(e.target.value)}>
                  <option value="">As the profile says</option>
                  <option value="ask">Ask me</option>
                  <option value="allow-read">Allow reading, ask for the rest</option>
                  <option value="allow">Allow everything</option>
                </select>
              )}
            </Field>
          </div>
        </details>
        {busy && (
          <p className="note row" role="status">
            <span className="spinner" aria-hidden="true" /> Starting {base}. Some agents load their servers first, which takes a while.
          </p>
        )}
        <Problem text={error} />
        <div className="foot">
          <Button onClick={onClose}>Not now</Button>
          <Button type="submit" kind="primary" disabled={!ready} busy={busy}>
            Start
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
