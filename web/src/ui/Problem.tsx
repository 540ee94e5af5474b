/** What went wrong, in words; nothing where nothing did. */
export function Problem({ text }: { text: string }) {
  if (!text) return null;
  return (
    <p className="note red" role="alert">
      {text}
    </p>
  );
}
