// What jsdom lacks, and the page uses.
import { cleanup } from "@testing-library/react";
import { afterEach, vi } from "vitest";

afterEach(cleanup);

class NoObserver {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

let queries: Record<string, boolean> = {};

/** Says which media queries hold. */
export function media(holds: Record<string, boolean>): void {
  queries = holds;
}

vi.stubGlobal("ResizeObserver", NoObserver);
vi.stubGlobal("matchMedia", (query: string) => ({
  matches: queries[query] ?? false,
  media: query,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}));
Element.prototype.setPointerCapture ??= () => undefined;
Element.prototype.hasPointerCapture ??= () => false;
Element.prototype.scrollIntoView ??= () => undefined;
