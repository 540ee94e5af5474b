import { useSyncExternalStore } from "react";

/** Whether a media query holds. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const m = matchMedia(query);
      m.addEventListener("change", listener);
      return () => m.removeEventListener("change", listener);
    },
    () => matchMedia(query).matches,
  );
}

/** Fingers, or a narrow window: what opens over the page then comes from below. */
export const touchQuery = "(pointer: coarse), (max-width: 639px)";
