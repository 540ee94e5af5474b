// What jsdom lacks, and the page uses.
// It is loaded once for all files: what is to be done after each test is said by each.
import { configure } from "@testing-library/react";
import { vi } from "vitest";

// What is awaited ends a test that hangs; on a busy machine it may take its time.
configure({ asyncUtilTimeout: 20_000 });

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
