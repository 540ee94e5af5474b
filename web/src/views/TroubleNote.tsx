import { troubleWords } from "../live/sessions";
import type { SessionInfo } from "../live/wire";
import { Time } from "../ui/Time";

/**
 * Says what is wrong with a session, since when, and what to do. The place of the words is
 * there before, so that they are spoken; how long ago it was changes, and stands beside it,
 * so that they are not spoken again.
 */
export function TroubleNote({ info }: { info: SessionInfo | null }) {
  const words = info && troubleWords(info);
  const trouble = words ? info.trouble : null;
  return (
    <div className={trouble ? `note ${words?.tone === "failed" ? "red" : "amber"}` : undefined}>
      <span role="status">{trouble && <span>{trouble.text}</span>}</span>
      {trouble?.since && (
        <>
          {" · "}
          <Time at={trouble.since} />
        </>
      )}
    </div>
  );
}
