import { useState } from "react";
import { Button } from "./ui/Button";
import { Problem } from "./ui/Problem";

/** Asks for the token of the daemon. */
export function TokenScreen({ refused, onToken }: { refused: boolean; onToken: (token: string) => void }) {
  const [text, setText] = useState("");
  const token = /#token=(.+)$/.exec(text.trim())?.[1] ?? text.trim();
  return (
    <main className="token">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (token) onToken(token);
        }}
      >
        <span className="brand">
          <img src="/icon.svg" alt="" /> ossicle
        </span>
        <h1>Open this daemon</h1>
        <p className="small muted">
          <code>ossicle serve</code> prints a link that opens this page. Without it, paste that link, or a token of this daemon.
        </p>
        {refused && <Problem text="The daemon did not take the token. It may have been revoked, or be of another daemon." />}
        <div className="field">
          <label htmlFor="token">Token or link</label>
          <input id="token" className="input mono" type="password" autoComplete="off" spellCheck={false} value={text} onChange={(e) => setText(e.target.value)} autoFocus />
          <span className="hint">It is kept in this browser, for this address only.</span>
        </div>
        <Button type="submit" kind="primary" disabled={!token}>
          Open
        </Button>
      </form>
    </main>
  );
}
