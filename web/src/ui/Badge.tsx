/** A word with a colour. The word says it all; the colour only helps. */
export function Badge({ tone = "grey", children, plain }: { tone?: "green" | "amber" | "red" | "grey" | "blue"; children: string; plain?: boolean }) {
  return <span className={`badge ${tone} ${plain ? "plain" : ""}`}>{children}</span>;
}
