import { useState } from "react";
import type { ServerResources } from "../live/wire";
import { Field } from "../ui/Field";

const most = 200;

/** The resources that the session's servers name. */
export function ResourcePicker({ servers, chosen, onChoose }: { servers: readonly ServerResources[] | string | null; chosen: string; onChoose: (uri: string) => void }) {
  const [find, setFind] = useState("");
  if (servers === null) {
    return (
      <p className="note row" role="status">
        <span className="spinner" aria-hidden="true" /> Asking the servers for their resources…
      </p>
    );
  }
  if (typeof servers === "string") return <p className="note amber">The resources could not be listed: {servers}</p>;
  const word = find.toLowerCase();
  const all = servers.flatMap((s) => [
    ...(s.resources ?? []).map((r) => ({ server: s.name, uri: r.uri, text: r.name || r.description || "", template: false })),
    ...(s.templates ?? []).map((t) => ({ server: s.name, uri: t.uri_template, text: t.name || t.description || "", template: true })),
  ]);
  const found = all.filter((r) => (r.server + " " + r.uri + " " + r.text).toLowerCase().includes(word));
  const broken = servers.filter((s) => s.error);
  return (
    <div className="stack tight">
      {all.length > 8 && <Field label="Find a resource">{(f) => <input {...f} className="input" type="search" value={find} onChange={(e) => setFind(e.target.value)} />}</Field>}
      {found.length > 0 ? (
        <div className="choices" role="group" aria-label="Resources">
          {found.slice(0, most).map((r) => (
            <button type="button" key={r.server + " " + r.uri} aria-pressed={r.uri === chosen} onClick={() => onChoose(r.uri)}>
              <span className="mono tiny">{r.uri}</span>
              <span className="tiny muted">
                {" "}
                {r.template ? "fill in {…} · " : ""}
                {r.server}
                {r.text ? ` · ${r.text.split("\n")[0]?.slice(0, 120)}` : ""}
              </span>
            </button>
          ))}
        </div>
      ) : (
        <p className="tiny muted">{all.length ? "No resource has these words." : "The servers name no resources."}</p>
      )}
      {found.length > most && <p className="tiny muted">{found.length - most} more; write a word to find them.</p>}
      {broken.map((s) => (
        <p className="tiny red-text wrap" key={s.name}>
          {s.name}: {s.error}
        </p>
      ))}
    </div>
  );
}
