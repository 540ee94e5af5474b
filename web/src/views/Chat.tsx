import { lazy, Suspense } from "react";
import { sessionRoom } from "../live/session";
import { sessionsRoom } from "../live/sessions";
import { usePage, useTopic } from "../page";
import { href } from "../route";
import { Empty } from "../ui/Empty";
import { PhaseNote } from "../ui/PhaseNote";
import { ChatToolbar } from "./ChatToolbar";
import { Composer } from "./Composer";
import { isTerminal } from "./engine";
import { Transcript } from "./Transcript";
import { TroubleNote } from "./TroubleNote";

const TerminalPane = lazy(() => import("./TerminalPane").then((m) => ({ default: m.TerminalPane })));

/** One session: its toolbar, what was said, and where to say more. */
export function Chat({ id }: { id: string }) {
  const { info: page } = usePage();
  const topic = "session:" + id;
  const view = useTopic(topic, sessionRoom(id));
  const known = useTopic("sessions", sessionsRoom);
  const { state } = view;
  const info = state.info ?? known.state.find((s) => s.meta.id === id) ?? null;

  if (view.phase === "failed" && (view.code === "not_found" || view.code === "forbidden")) {
    return (
      <Empty whole title={view.code === "forbidden" ? "Not yours to see" : "No such session"}>
        <p className="wrap">
          {view.code === "forbidden" ? `Your token gives no right to a session “${id}”.` : `“${id}” is not there. It may have been removed.`}
        </p>
        <a className="button" href={href("sessions")}>
          All sessions
        </a>
      </Empty>
    );
  }
  const terminal = isTerminal(info, page);
  return (
    <div className="chat">
      <ChatToolbar id={id} info={info} view={view} />
      {view.phase !== "live" && <PhaseNote view={view} topic={topic} what="this session" />}
      <TroubleNote info={info} />
      {terminal ? (
        <Suspense fallback={<p className="note" role="status">Loading the terminal…</p>}>
          <TerminalPane id={id} running={info?.running ?? false} />
        </Suspense>
      ) : (
        <Transcript id={id} state={state} loading={view.phase === "loading"} />
      )}
      <Composer id={id} info={info} state={state} />
    </div>
  );
}
