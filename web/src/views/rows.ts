import type { Entry } from "../live/wire";

/** What of a transcript is shown: how a notice came through the queue is the inbox's matter, unless it was lost. */
export function shown(e: Entry): boolean {
  // That a turn begins for one message says the message.
  if (e.kind === "run_start") return (e.notices?.length ?? 0) > 0 || (e.inputs?.length ?? 0) > 1;
  return e.kind !== "queue_operation" || e.operation === "drop";
}

/**
 * Turns that nobody ended: the daemon or the machine went away in their midst. One that
 * may still run is none of them.
 */
export function cutOff(entries: readonly Entry[], mayRun: boolean): ReadonlySet<number> {
  const ended = new Set(entries.filter((e) => e.kind === "run_end").map((e) => e.run));
  const starts = entries.filter((e) => e.kind === "run_start");
  return new Set(starts.filter((e, i) => !ended.has(e.run) && (!mayRun || i < starts.length - 1)).map((e) => e.seq));
}

/** A number to go by before a row has been measured. */
export function estimate(e: Entry): number {
  switch (e.kind) {
    case "user":
    case "assistant":
      return 48 + Math.min(40, Math.ceil((e.text?.length ?? 0) / 90)) * 22;
    case "tool":
    case "monitor_event":
      return 44;
  }
  return 32;
}

export const toolWords: Record<string, string> = {
  pending: "Waiting",
  in_progress: "Working",
  completed: "Done",
  failed: "Failed",
};

export function toolTone(status: string | undefined): "green" | "red" | "blue" | "grey" {
  switch (status) {
    case "completed":
      return "green";
    case "failed":
      return "red";
    case "in_progress":
      return "blue";
  }
  return "grey";
}

const decided: Record<string, string> = {
  allow_once: "allowed once",
  allow_always: "allowed from now on",
  reject_once: "rejected",
  reject_always: "rejected from now on",
  cancelled: "left undecided",
};

export function decision(status: string | undefined): string {
  return decided[status ?? ""] ?? (status || "answered");
}
