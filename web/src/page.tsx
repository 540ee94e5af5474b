import { createContext, use, useCallback, useRef, useSyncExternalStore } from "react";
import type { Api } from "./live/api";
import type { Live } from "./live/live";
import type { Room, View } from "./live/room";
import type { Status } from "./live/socket";
import type { PageInfo } from "./live/wire";

/** What every view works with. */
export interface Page {
  api: Api;
  live: Live;
  info: PageInfo | null;
  stale: boolean; // the daemon is another version than when the page was loaded
  leave: () => void; // forgets the token
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = use(PageContext);
  if (!page) throw new Error("used outside of the page");
  return page;
}

/** Follows a topic for as long as the caller is shown. */
export function useTopic<S>(topic: string, room: Room<S>, params?: () => Record<string, unknown>): View<S> {
  const { live } = usePage();
  const p = useRef(params);
  p.current = params;
  const subscribe = useCallback((listener: () => void) => live.hold(topic, room, listener, () => p.current?.() ?? {}), [live, topic, room]);
  return useSyncExternalStore(subscribe, () => live.view(topic, room));
}

export function useStatus(): Status {
  const { live } = usePage();
  return useSyncExternalStore(live.onStatus, () => live.status);
}
