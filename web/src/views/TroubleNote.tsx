import { troubleWords } from "../live/sessions";
import type { SessionInfo } from "../live/wire";
import { Time } from "../ui/Time";

/** Says what is wrong with a session, since when, and what to do; the place is there before, so that it is spoken. */
export function TroubleNote({ info }: { info: SessionInfo | null }) {
  const words = info && troubleWords(info);
  return (
    <div role="status">
      {words && info.trouble && (
        <p className={`note ${words.tone === "failed" ? "red" : "amber"}`}>
          {info.trouble.text}
          {info.trouble.since && (
            <>
              {" · "}
              <Time at={info.trouble.since} />
            </>
          )}
        </p>
      )}
    </div>
  );
}
