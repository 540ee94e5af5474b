import { useCallback, useEffect, useRef, useState } from "react";
import { message } from "../live/api";
import type { FeedItem, FeedStatus } from "../live/feed";
import { follow, maxItems } from "../live/feed";
import type { Topic } from "../live/wire";
import { usePage, useStatus } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { FeedRows } from "./FeedRows";

// The most topics that one stream takes by name.
const maxNamed = 64;

const statusWords: Record<FeedStatus, string> = { connecting: "Connecting…", live: "Live", reconnecting: "Reconnecting…", failed: "Stopped", closed: "Paused" };

/** The feed as it happens. A pause lets go of the stream; going on begins where it was. */
export function FeedView() {
  const { api, info } = usePage();
  const [topics, setTopics] = useState<readonly Topic[] | null>(null);
  const [problem, setProblem] = useState("");
  const [topic, setTopic] = useState("");
  const [paused, setPaused] = useState(false);
  const [status, setStatus] = useState<FeedStatus>("connecting");
  const [error, setError] = useState("");
  const [items, setItems] = useState<readonly FeedItem[]>([]);
  const [dropped, setDropped] = useState(0);
  const position = useRef("");
  const waiting = useRef<FeedItem[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  const load = useCallback(() => {
    api.ask<{ topics?: Topic[] | null }>("GET", "/v1/topics").then(
      (r) => {
        setTopics(r.topics ?? []);
        setProblem("");
      },
      (e: unknown) => setProblem(message(e)),
    );
  }, [api]);
  // Once more with each new connection: what failed while the daemon was away does not any more.
  const connection = useStatus();
  useEffect(() => {
    if (connection === "live") load();
  }, [load, connection]);

  // A token that may not read everything asks for what it may read, by name.
  const [refused, setRefused] = useState(false);
  const [tries, setTries] = useState(0);
  const some = refused || info?.principal?.all === false;
  const named = topics?.slice(0, maxNamed).map((t) => t.name).join(" ") ?? "";
  const wanted = topic || (some ? named : "");
  const ready = info !== null && topics !== null && !(some && wanted === "");

  useEffect(() => {
    if (!ready) return;
    if (paused) {
      setStatus("closed");
      return;
    }
    const stop = new AbortController();
    const draw = (): void => {
      clearTimeout(timer.current);
      timer.current = undefined;
      const fresh = waiting.current.reverse();
      waiting.current = [];
      if (fresh.length === 0) return;
      setItems((old) => {
        const all = [...fresh, ...old];
        if (all.length <= maxItems) return all;
        setDropped((n) => n + all.length - maxItems);
        return all.slice(0, maxItems);
      });
    };
    // Events of a tenth of a second are drawn together. What follows on this goes on behind
    // them, so the position is that of all that has come.
    const take = (more: FeedItem[], at: string): void => {
      position.current = at;
      waiting.current.push(...more);
      timer.current ??= setTimeout(draw, 100);
    };
    const onStatus = (s: FeedStatus, e: string, code: number): void => {
      if (stop.signal.aborted) return;
      if (code === 403 && wanted === "") {
        setRefused(true);
        return;
      }
      setStatus(s);
      setError(e);
    };
    void follow(api, { topics: wanted ? wanted.split(" ") : [], from: position.current, onItems: (more, at) => !stop.signal.aborted && take(more, at), onStatus }, stop.signal);
    return () => {
      stop.abort();
      draw();
    };
  }, [api, wanted, ready, paused, tries]);

  const choose = (t: string): void => {
    position.current = "";
    waiting.current = [];
    setItems([]);
    setDropped(0);
    setTopic(t);
  };
  return (
    <div className="view">
      <div className="head">
        <h1>Live feed</h1>
        <span className={`connection ${status === "live" ? "live" : status === "reconnecting" ? "reconnecting" : ""}`} role="status">
          {statusWords[status]}
        </span>
        <span className="grow" />
        <select className="input topic" aria-label="Topic" value={topic} onChange={(e) => choose(e.target.value)}>
          <option value="">{some ? "all that I may read" : "all topics"}</option>
          {topics?.map((t) => (
            <option key={t.name} value={t.name}>
              {t.name} ({t.count.toLocaleString("en")})
            </option>
          ))}
        </select>
        <Button icon={paused ? "play" : "pause"} aria-pressed={paused} onClick={() => setPaused((p) => !p)}>
          {paused ? "Go on" : "Pause"}
        </Button>
        <Button
          kind="quiet"
          disabled={items.length === 0}
          onClick={() => {
            setItems([]);
            setDropped(0);
          }}
        >
          Clear
        </Button>
      </div>
      {(error || problem) && (
        <div className="note red row flow" role="alert">
          <span className="grow">{error ? `The feed is not followed any more: ${error}` : `The topics could not be listed: ${problem}`}</span>
          <Button
            onClick={() => {
              setError("");
              load();
              setTries((n) => n + 1);
            }}
          >
            Try again
          </Button>
        </div>
      )}
      {items.length === 0 ? (
        <Waiting status={status} paused={paused} nothing={some && topics?.length === 0} />
      ) : (
        <FeedRows items={items} dropped={dropped} />
      )}
    </div>
  );
}

function Waiting({ status, paused, nothing }: { status: FeedStatus; paused: boolean; nothing: boolean }) {
  if (paused) {
    return (
      <Empty title="Paused">
        <p>Events are kept by the daemon meanwhile. “Go on” shows them from where it was paused.</p>
      </Empty>
    );
  }
  if (status === "reconnecting") {
    return (
      <Empty title="The daemon is away">
        <p>The feed goes on by itself once it is back, and then says what is missing, if anything is.</p>
      </Empty>
    );
  }
  if (status === "failed") return null;
  return (
    <Empty title={nothing ? "Nothing to follow" : status === "live" ? "Waiting for events" : "Connecting to the feed…"}>
      {nothing && <p>There is no topic yet that your token may read.</p>}
      <p>
        What is published from now on appears here, the newest first. Try <code>ossicle publish demo '{"{}"}'</code>.
      </p>
    </Empty>
  );
}
