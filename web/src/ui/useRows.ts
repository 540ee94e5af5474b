import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

/** Rows of a long list, of which only those in sight are drawn. */
export function useRows(count: number, size: number, key: (i: number) => string | number) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count, getScrollElement: () => scroller.current, estimateSize: () => size, getItemKey: key, overscan: 12 });
  return { scroller, rows };
}
