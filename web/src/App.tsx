import { useEffect, useMemo, useState } from "react";
import { dialer } from "./dial";
import { Api, storedTokens, tokenOfFragment } from "./live/api";
import { Live } from "./live/live";
import type { PageInfo } from "./live/wire";
import { PageContext } from "./page";
import { Shell } from "./Shell";
import { TokenScreen } from "./TokenScreen";

// The token of a link is taken before anything is drawn, and the link forgotten.
function firstToken(): string | null {
  const tokens = storedTokens();
  const given = tokenOfFragment(location.hash);
  if (given) {
    tokens.set(given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return tokens.get();
}

export function App() {
  const [token, setToken] = useState(firstToken);
  const [refused, setRefused] = useState(false);
  useEffect(() => {
    // A second link in the same tab changes the fragment only.
    const taken = (): void => {
      const given = tokenOfFragment(location.hash);
      if (given) setToken(firstToken());
    };
    addEventListener("hashchange", taken);
    return () => removeEventListener("hashchange", taken);
  }, []);
  if (!token) {
    return (
      <TokenScreen
        refused={refused}
        onToken={(t) => {
          storedTokens().set(t);
          setRefused(false);
          setToken(t);
        }}
      />
    );
  }
  const drop = (was: boolean) => () => {
    storedTokens().set(null);
    setRefused(was);
    setToken(null);
  };
  return <Connected key={token} onRefused={drop(true)} onLeave={drop(false)} />;
}

function Connected({ onRefused, onLeave }: { onRefused: () => void; onLeave: () => void }) {
  const [info, setInfo] = useState<PageInfo | null>(null);
  const [first, setFirst] = useState("");
  const { api, live } = useMemo(() => {
    const made = new Api(storedTokens());
    return { api: made, live: new Live(dialer(made)) };
  }, []);
  useEffect(() => {
    api.onRefused = onRefused;
  });
  useEffect(() => {
    live.socket.start();
    const hurry = (): void => {
      if (document.visibilityState === "visible") live.socket.hurry();
    };
    addEventListener("online", hurry);
    document.addEventListener("visibilitychange", hurry);
    return () => {
      removeEventListener("online", hurry);
      document.removeEventListener("visibilitychange", hurry);
      live.socket.stop();
    };
  }, [live]);
  useEffect(() => {
    // Each new connection may be to another daemon: what it has is asked again.
    let over = false;
    const load = (): void => {
      if (live.status !== "live") return;
      api.ask<PageInfo>("GET", "/v1/page").then(
        (i) => {
          if (over) return;
          setInfo(i);
          setFirst((f) => f || (i.version ?? ""));
        },
        () => undefined,
      );
    };
    load();
    const off = live.onStatus(load);
    return () => {
      over = true;
      off();
    };
  }, [api, live]);
  const stale = first !== "" && (info?.version ?? "") !== first;
  const page = useMemo(() => ({ api, live, info, stale, leave: onLeave }), [api, live, info, stale, onLeave]);
  return (
    <PageContext value={page}>
      <Shell />
    </PageContext>
  );
}
