import type { ReactNode } from "react";
import { memo } from "react";

// A small part of Markdown, as elements of React: code, bold, and paragraphs. What
// agents and servers say is data; it never becomes markup, an address or an image.

interface Fence {
  code: boolean;
  text: string;
}

/** Splits a text at its fences; one that is never closed reaches to the end. */
export function fences(text: string): Fence[] {
  const parts: Fence[] = [];
  let plain: string[] = [];
  let code: string[] | null = null;
  let mark = "";
  const flush = (): void => {
    if (plain.length) parts.push({ code: false, text: plain.join("\n") });
    plain = [];
  };
  for (const line of text.split("\n")) {
    const fence = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (code === null && fence) {
      flush();
      code = [];
      mark = fence;
    } else if (code !== null && fence?.startsWith(mark) && line.trim() === fence) {
      parts.push({ code: true, text: code.join("\n") });
      code = null;
    } else if (code !== null) code.push(line);
    else plain.push(line);
  }
  if (code !== null) parts.push({ code: true, text: code.join("\n") });
  flush();
  return parts;
}

// Stars that stand beside a space or in a glob are what they are: bold begins and ends
// by CommonMark's rules of flanking, and neither after nor before the slash of a path.
const beside = "[\\s\\p{P}\\p{S}]";
const letter = "[^\\s\\p{P}\\p{S}]";
const begin = `(?<![*/])\\*\\*(?:(?=${letter})|(?<=(?:^|${beside})\\*\\*)(?=[^\\s*]))`;
const end = `(?:(?<=${letter})\\*\\*|(?<=[^\\s*])\\*\\*(?=$|${beside}))(?![*/])`;
const inline = new RegExp(`((?<!\`)\`[^\`\\n]+\`(?!\`)|${begin}[^*\\n]+${end})`, "u");

function words(text: string): ReactNode[] {
  // Every second part is one that matched.
  return text.split(inline).map((part, i) => {
    if (i % 2 === 0) return part;
    return part.startsWith("`") ? <code key={i}>{part.slice(1, -1)}</code> : <strong key={i}>{part.slice(2, -2)}</strong>;
  });
}

export const SafeText = memo(function SafeText({ text }: { text: string }) {
  return (
    <div className="text">
      {fences(text).map((part, i) =>
        part.code ? (
          <pre key={i} className="block" tabIndex={0}>
            {part.text}
          </pre>
        ) : (
          <div key={i} className="para">
            {words(part.text.replace(/^\n+|\n+$/g, ""))}
          </div>
        ),
      )}
    </div>
  );
});
