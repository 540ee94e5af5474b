import type { ReactNode } from "react";

/** What a view says while there is nothing to show; whole where it is all of the view. */
export function Empty({ title, whole, children }: { title: string; whole?: boolean; children?: ReactNode }) {
  return (
    <div className="empty">
      {whole ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}
