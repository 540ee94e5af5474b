import { useEffect, useState } from "react";
import { Button } from "./Button";

/** Copies a text that is made at the click, and says whether it worked. */
export function CopyButton({ text, children }: { text: () => string; children: string }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => setSaid(""), 4_000);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      setSaid("Copied");
    } catch {
      setSaid("The browser does not allow copying here");
    }
  };
  return (
    <>
      <Button icon="copy" onClick={() => void copy()}>
        {said === "Copied" ? said : children}
      </Button>
      <span role="status" className={said && said !== "Copied" ? "small" : "unseen"}>
        {said}
      </span>
    </>
  );
}
