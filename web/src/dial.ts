import type { Api } from "./live/api";
import type { Wire } from "./live/socket";
import { protocol } from "./live/socket";

/** Opens the live connection: a ticket by HTTP, since a WebSocket of a browser carries no token. */
export function dialer(api: Api): () => Promise<Wire> {
  return async () => {
    const { ticket } = await api.ask<{ ticket: string }>("POST", "/v1/live/tickets");
    const url = new URL("/v1/live", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("ticket", ticket);
    return new WebSocket(url, protocol) as unknown as Wire;
  };
}
