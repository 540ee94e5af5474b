import { show } from "../live/json";

/** JSON or text from outside, with a name for those who cannot see it. */
export function Block({ label, value, tall }: { label: string; value: unknown; tall?: boolean }) {
  const text = show(value);
  if (text === "") return null;
  return (
    <figure>
      <figcaption className="tiny muted">{label}</figcaption>
      <pre className={`block ${tall ? "tall" : ""}`} tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
    </figure>
  );
}
