/** Splits a command line as a shell would, without ever being one: quotes and backslashes only. */
export function splitCommand(text: string): string[] | null {
  const words: string[] = [];
  let word = "";
  let open = false;
  let quote = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i] as string;
    if (quote) {
      if (c === quote) quote = "";
      else if (c === "\\" && quote === '"' && /["\\]/.test(text[i + 1] ?? "")) word += text[++i];
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      open = true;
    } else if (c === "\\" && i + 1 < text.length) {
      word += text[++i];
      open = true;
    } else if (/\s/.test(c)) {
      if (open) words.push(word);
      word = "";
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote) return null;
  if (open) words.push(word);
  return words;
}
