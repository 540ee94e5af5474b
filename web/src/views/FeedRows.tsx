import { useState } from "react";
import type { FeedItem } from "../live/feed";
import { Block } from "../ui/Block";
import { Clock } from "../ui/Time";
import { useRows } from "../ui/useRows";

/** Events, the newest first, of which only those in sight are drawn. */
export function FeedRows({ items, dropped }: { items: readonly FeedItem[]; dropped: number }) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const { scroller, rows } = useRows(items.length, 30, (i) => items[i]?.key ?? i);
  const toggle = (key: string, isOpen: boolean): void => {
    if (open.has(key) === isOpen) return;
    const next = new Set(open);
    if (isOpen) next.add(key);
    else next.delete(key);
    setOpen(next);
  };
  return (
    <>
      {/* No status: it would be spoken several times a second. */}
      <p className="facts-strip">
        {items.length.toLocaleString("en")} shown{dropped ? `; ${dropped.toLocaleString("en")} older ones were let go` : ""}
      </p>
      <div className="scroll-list" ref={scroller} tabIndex={0} role="region" aria-label="Events">
        <div className="rows" role="list" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => {
            const item = items[row.index];
            if (!item) return null;
            return (
              <div key={row.key} data-index={row.index} ref={rows.measureElement} className="place" role="listitem" aria-setsize={items.length} aria-posinset={row.index + 1} style={{ transform: `translateY(${row.start}px)` }}>
                {item.kind === "gap" ? (
                  <div className="event-row gap">{item.text}</div>
                ) : (
                  <div className="event-row">
                    <Clock at={item.time} />
                    <span className="what wrap">
                      {item.topic} · {item.type}
                      {item.name ? ` · ${item.name}` : ""}
                    </span>
                    <details open={open.has(item.key)} onToggle={(e) => toggle(item.key, e.currentTarget.open)}>
                      <summary>
                        <span className="what cut">{item.text}</span>
                      </summary>
                      {open.has(item.key) && <Block label={`Data of event ${item.id}`} value={item.data} />}
                    </details>
                  </div>
                )}
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}
