import { useSyncExternalStore } from "react";

interface Clock {
  now: number;
  listeners: Set<() => void>;
  timer: ReturnType<typeof setInterval> | undefined;
}

// One timer for everybody who shows times of one grain, and none while nobody does.
const clocks = new Map<number, Clock>();

function clockOf(every: number): Clock {
  let c = clocks.get(every);
  if (!c) {
    c = { now: Date.now(), listeners: new Set(), timer: undefined };
    clocks.set(every, c);
  }
  return c;
}

/** The time, in milliseconds; the caller renders again as it goes on. */
export function useNow(every: number): number {
  const c = clockOf(every);
  return useSyncExternalStore(
    (listener) => {
      c.listeners.add(listener);
      if (c.timer === undefined) {
        c.now = Date.now();
        c.timer = setInterval(() => {
          c.now = Date.now();
          for (const l of c.listeners) l();
        }, every);
      }
      return () => {
        c.listeners.delete(listener);
        if (c.listeners.size > 0) return;
        clearInterval(c.timer);
        c.timer = undefined;
      };
    },
    () => (c.timer === undefined ? roundNow(c, every) : c.now),
  );
}

// Before there is a timer the time must not change from one look to the next.
function roundNow(c: Clock, every: number): number {
  const now = Date.now();
  if (now - c.now > every) c.now = now;
  return c.now;
}
