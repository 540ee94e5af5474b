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

const statusWords: Record<FeedStatus, string> = { connecting: "Connecting…", live: "Live", reconnecting: "Reconnecting…", failed: "Stopped", closed: "Paused" };

/** The feed as it happens. A pause lets go of the stream; going on begins where it was. */
export function FeedView() {
  const { api } = usePage();
  const [topics, setTopics] = useState<readonly Topic[]>([]);
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

  useEffect(() => {
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
    const onStatus = (s: FeedStatus, e: string): void => {
      if (stop.signal.aborted) return;
      setStatus(s);
      setError(e);
      if (s === "live") load();
    };
    follow(api, { topics: topic ? [topic] : [], from: position.current, onItems: (more) => !stop.signal.aborted && take(more), onStatus }, stop.signal).then(
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
  }, [api, topic, paused, load]);

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
          <option value="">all topics</option>
          {topics.map((t) => (
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
        <Empty title={paused ? "Paused" : "Waiting for events"}>
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
