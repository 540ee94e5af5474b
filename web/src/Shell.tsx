import { lazy, Suspense, useEffect, useState } from "react";
import { inboxRoom } from "./live/inbox";
import { usePage, useStatus, useTopic } from "./page";
import type { Place } from "./route";
import { href, places, useRoute } from "./route";
import type { Theme } from "./theme";
import { applyTheme, storedTheme, themes } from "./theme";
import { Boundary } from "./ui/Boundary";
import { Button, IconButton } from "./ui/Button";
import { focusMain } from "./ui/focus";
import { Icon } from "./ui/Icon";
import { SessionsView } from "./views/SessionsView";

const views = {
  watches: () => import("./views/WatchesView").then((m) => ({ default: m.WatchesView })),
  inbox: () => import("./views/InboxView").then((m) => ({ default: m.InboxView })),
  feed: () => import("./views/FeedView").then((m) => ({ default: m.FeedView })),
  signals: () => import("./views/SignalsView").then((m) => ({ default: m.SignalsView })),
  workers: () => import("./views/WorkersView").then((m) => ({ default: m.WorkersView })),
};
const WatchesView = lazy(views.watches);
const InboxView = lazy(views.inbox);
const FeedView = lazy(views.feed);
const SignalsView = lazy(views.signals);
const WorkersView = lazy(views.workers);

const titles: Record<Place, string> = {
  sessions: "Sessions",
  watches: "Watches",
  inbox: "Inbox",
  feed: "Feed",
  signals: "Signals",
  workers: "Workers",
};

export function Shell() {
  const route = useRoute();
  const { stale } = usePage();
  useEffect(() => {
    document.title = (route.id ? route.id + " · " : "") + titles[route.place] + " · ossicle";
  }, [route]);
  const status = useStatus();
  useEffect(() => {
    // While the daemon is away, or another one, what was not loaded before is not to be had.
    if (status === "live") for (const load of Object.values(views)) load().catch(() => undefined);
  }, [status]);
  return (
    <div className="app">
      <a
        className="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          focusMain();
        }}
      >
        Skip to the content
      </a>
      <header className="top">
        <a className="brand" href={href("sessions")}>
          <img src="/icon.svg" alt="" /> ossicle
        </a>
        <span className="grow" />
        <Connection />
        <ThemeSwitch />
      </header>
      <nav aria-label="Views">
        <div className="nav">
          {places.map((p) => (
            <a key={p} href={href(p)} aria-current={route.place === p ? "page" : undefined}>
              <Icon name={p} size={18} />
              <span>{titles[p]}</span>
              {p === "inbox" && <Waiting />}
            </a>
          ))}
        </div>
      </nav>
      <main id="main">
        {stale && (
          <p className="note amber row flow" role="status">
            <span className="grow">The daemon was updated since this page was loaded.</span>
            <Button onClick={() => location.reload()}>Load it again</Button>
          </p>
        )}
        <Boundary of={route.place + "/" + route.id}>
          <Suspense fallback={<p className="note row" role="status"><span className="spinner" aria-hidden="true" /> Loading this view…</p>}>
            <Body place={route.place} id={route.id} />
          </Suspense>
        </Boundary>
      </main>
    </div>
  );
}

function Body({ place, id }: { place: Place; id: string }) {
  switch (place) {
    case "sessions":
      return <SessionsView id={id} />;
    case "watches":
      return <WatchesView />;
    case "inbox":
      return <InboxView />;
    case "feed":
      return <FeedView />;
    case "signals":
      return <SignalsView id={id} />;
    case "workers":
      return <WorkersView />;
  }
}

const statusWords = { connecting: "Connecting…", live: "Live", reconnecting: "Reconnecting…", closed: "Not connected" };

function Connection() {
  const status = useStatus();
  return (
    <span className={`connection ${status}`} role="status">
      {statusWords[status]}
    </span>
  );
}

/** How many notices wait, if any. */
function Waiting() {
  const { state } = useTopic("inbox", inboxRoom);
  const n = state.agents.reduce((sum, a) => sum + a.pending, 0);
  if (n === 0) return null;
  return (
    <span className="number">
      {n > 99 ? "99+" : n}
      <span className="unseen"> waiting</span>
    </span>
  );
}

const themeIcons = { system: "system", light: "sun", dark: "moon" } as const;

function ThemeSwitch() {
  const { leave } = usePage();
  const [theme, setTheme] = useState<Theme>(storedTheme);
  const next = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system";
  return (
    <>
      <IconButton
        icon={themeIcons[theme]}
        label={`Colours: ${theme}. Change to ${next}`}
        onClick={() => {
          applyTheme(next);
          setTheme(next);
        }}
      />
      <IconButton icon="leave" label="Forget the token and leave" onClick={leave} />
    </>
  );
}
