import { useCallback, useEffect, useRef, useState } from "react";
import { message } from "../live/api";
import type { FeedItem, FeedStatus } from "../live/feed";
import { follow, maxItems } from "../live/feed";
import type { Topic } from "../live/wire";
import { usePage } from "../page";
import { Button } from "../ui/Button";
import { Empty } from "../ui/Empty";
import { Problem } from "../ui/Problem";
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
      (r) => setTopics(r.topics ?? []),
      (e: unknown) => setProblem(message(e)),
    );
  }, [api]);
  useEffect(load, [load]);

  // A token that may not read everything asks for what it may read, by name.
  const [refused, setRefused] = useState(false);
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
    // Events of a tenth of a second are drawn together.
    const take = (more: FeedItem[]): void => {
      waiting.current.push(...more);
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        const fresh = waiting.current.reverse();
        waiting.current = [];
        setItems((old) => {
          const all = [...fresh, ...old];
          if (all.length <= maxItems) return all;
          setDropped((n) => n + all.length - maxItems);
          return all.slice(0, maxItems);
        });
      }, 100);
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
    follow(api, { topics: wanted ? wanted.split(" ") : [], from: position.current, onItems: (more) => !stop.signal.aborted && take(more), onStatus }, stop.signal).then(
      (p) => {
        if (stop.signal.aborted) position.current = p;
      },
      () => undefined,
    );
    return () => {
      stop.abort();
      clearTimeout(timer.current);
      timer.current = undefined;
      waiting.current = [];
    };
  }, [api, wanted, ready, paused]);

  const choose = (t: string): void => {
    position.current = "";
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
      <Problem text={error || problem} />
      {items.length === 0 ? (
        <Empty title={paused ? "Paused" : some && topics?.length === 0 ? "Nothing to follow" : "Waiting for events"}>
          {some && topics?.length === 0 && <p>There is no topic yet that your token may read.</p>}
          <p>
            What is published from now on appears here, the newest first. Try <code>ossicle publish demo '{"{}"}'</code>.
          </p>
        </Empty>
      ) : (
        <FeedRows items={items} dropped={dropped} />
      )}
    </div>
  );
}
