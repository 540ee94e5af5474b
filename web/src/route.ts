import { useSyncExternalStore } from "react";

export const places = ["sessions", "watches", "inbox", "feed", "signals", "workers"] as const;
export type Place = (typeof places)[number];

export interface Route {
  readonly place: Place;
  readonly id: string;
}

/** Reads a fragment such as #/sessions/ID; what is not known leads to the sessions. */
export function parseRoute(hash: string): Route {
  const [, place = "", ...rest] = hash.replace(/^#/, "").split("/");
  const known = places.find((p) => p === place);
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // A fragment that somebody typed: taken as it is.
  }
  return { place: known ?? "sessions", id: known ? id : "" };
}

export function href(place: Place, id = ""): string {
  return `#/${place}${id ? "/" + encodeURIComponent(id) : ""}`;
}

export function go(place: Place, id = ""): void {
  location.hash = href(place, id);
}

let last: Route | undefined;
let lastHash: string | undefined;

function current(): Route {
  if (location.hash !== lastHash || !last) {
    lastHash = location.hash;
    last = parseRoute(location.hash);
  }
  return last;
}

export function useRoute(): Route {
  return useSyncExternalStore((listener) => {
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, current);
}
