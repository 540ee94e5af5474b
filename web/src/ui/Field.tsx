import type { ReactNode } from "react";
import { useId } from "react";

interface Props {
  label: string;
  hint?: ReactNode;
  wide?: boolean;
  children: (ids: { id: string; "aria-describedby": string | undefined }) => ReactNode;
}

/** A label, a control and perhaps a hint, tied to each other. */
export function Field({ label, hint, wide, children }: Props) {
  const id = useId();
  const hintId = id + "-hint";
  return (
    <div className={`field ${wide ? "wide" : ""}`}>
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-describedby": hint ? hintId : undefined })}
      {hint && (
        <span className="hint" id={hintId}>
          {hint}
        </span>
      )}
    </div>
  );
}
