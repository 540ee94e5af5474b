// The HTTP half of the daemon's API.
import { parse } from "./json";

const tokenKey = "ossicle.token";

/** An error that the daemon told (RFC 9457), or that kept it from being asked (status 0). */
export class ApiError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

export interface Tokens {
  get(): string | null;
  set(token: string | null): void;
}

/** The token in localStorage; in memory where there is no storage. */
export function storedTokens(): Tokens {
  let memory: string | null = null;
  return {
    get() {
      try {
        return localStorage.getItem(tokenKey) ?? memory;
      } catch {
        return memory;
      }
    },
    set(token) {
      memory = token;
      try {
        if (token === null) localStorage.removeItem(tokenKey);
        else localStorage.setItem(tokenKey, token);
      } catch {
        // Private windows may refuse: the token then lasts as long as the page.
      }
    },
  };
}

/** Takes a token out of a fragment such as #token=T, and the token out of the address. */
export function tokenOfFragment(hash: string): string | null {
  const m = /^#token=([^&]+)$/.exec(hash);
  if (!m?.[1]) return null;
  try {
    return decodeURIComponent(m[1]);
  } catch {
    return m[1];
  }
}

const patience = 30_000;

export class Api {
  readonly tokens: Tokens;
  /** Called when the daemon does not take the token. */
  onRefused: () => void = () => undefined;

  constructor(tokens: Tokens) {
    this.tokens = tokens;
  }

  async ask<T>(method: string, path: string, body?: unknown, options?: { signal?: AbortSignal; timeout?: number }): Promise<T> {
    const answer = await this.request(method, path, body, options);
    const text = await answer.text();
    return (text === "" ? undefined : parse(text)) as T;
  }

  /** Asks, and throws an ApiError unless the answer is a success. */
  async request(method: string, path: string, body?: unknown, options?: { signal?: AbortSignal; timeout?: number; accept?: string; headers?: Record<string, string> }): Promise<Response> {
    const signals = [options?.signal, options?.timeout === 0 ? undefined : AbortSignal.timeout(options?.timeout ?? patience)].filter((s) => s !== undefined);
    const token = this.tokens.get();
    let answer: Response;
    try {
      answer = await fetch(path, {
        method,
        headers: {
          ...(token ? { Authorization: `Bearer ${token}` } : {}),
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
          ...(options?.accept ? { Accept: options.accept } : {}),
          ...options?.headers,
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: signals.length ? AbortSignal.any(signals) : undefined,
        cache: "no-store",
        credentials: "omit",
      });
    } catch (e) {
      if (options?.signal?.aborted) throw e;
      if (e instanceof DOMException && e.name === "TimeoutError") throw new ApiError(0, "The daemon did not answer in time.");
      throw new ApiError(0, "The daemon cannot be reached. Is ossicle serve running?");
    }
    if (answer.ok) return answer;
    if (answer.status === 401) this.onRefused();
    throw new ApiError(answer.status, await problem(answer));
  }
}

async function problem(answer: Response): Promise<string> {
  try {
    const p = (await answer.json()) as { detail?: unknown; title?: unknown };
    const text = p.detail ?? p.title;
    if (typeof text === "string" && text !== "") return text;
  } catch {
    // Not a problem document: the status has to do.
  }
  return `The daemon answered ${answer.status} ${answer.statusText}`.trim() + ".";
}

/** What an error says to a person. */
export function message(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

export function path(...parts: string[]): string {
  return "/v1/" + parts.map(encodeURIComponent).join("/");
}
