import { act } from "@testing-library/react";
import { vi } from "vitest";
import { Api } from "../live/api";
import { Live } from "../live/live";
import type { Status } from "../live/socket";
import type { EndpointTests } from "../views/EndpointTest";

/** What views work with, without a daemon. */
export function page() {
  const api = new Api({ get: () => "t", set: () => undefined });
  const live = new Live(() => Promise.reject(new Error("none")));
  return { api, live, info: null, stale: false, leave: () => undefined };
}

/** Endpoint tests of which none runs, but for what is said. */
export function tests(extra: Partial<EndpointTests> = {}): EndpointTests {
  return { running: "", results: new Map(), test: () => undefined, ...extra };
}

/** A live connection of which the test says how it is. */
export function connected(status: Status) {
  const p = page();
  let now = status;
  let told = (): void => undefined;
  vi.spyOn(p.live, "status", "get").mockImplementation(() => now);
  p.live.onStatus = (listener) => {
    told = listener;
    return () => undefined;
  };
  const becomes = (s: Status): void =>
    act(() => {
      now = s;
      told();
    });
  return { page: p, becomes };
}
