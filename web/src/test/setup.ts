// What jsdom lacks, and the page uses.
// It is loaded once for all files: what is to be done after each test is said by each.
import { vi } from "vitest";

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
