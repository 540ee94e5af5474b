import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import type { Plugin } from "vite";

// The page is served with style-src 'self': elements <style> and attributes style that
// libraries write are refused, and what they set as properties is not. Each of these
// changes fails the build when the library is no longer as it was.
//   vaul writes a <style> as it is loaded; what its drawer needs stands in parts.css.
//   xterm writes three, which become elements of terminalSheet.ts, and style attributes.
interface Change {
  file: RegExp;
  from: RegExp;
  to: string;
  times: number;
}

const changes: Change[] = [
  { file: /node_modules\/vaul\/dist\/index\.mjs/, from: /^__insertCSS\(.*\);?$/gm, to: "", times: 1 },
  { file: /node_modules\/@xterm\/xterm\/lib\/xterm\.mjs/, from: /createElement\("style"\)/g, to: 'createElement("xterm-sheet")', times: 3 },
  {
    file: /node_modules\/@xterm\/xterm\/lib\/xterm\.mjs/,
    from: /_addStyle\((\w+),(\w+)\)\{\1\.setAttribute\("style",`[^`]*`\)\}/g,
    to: '_addStyle($1,$2){$1.style.cssText+=$2+";"}',
    times: 1,
  },
];

function underPolicy(): Plugin {
  return {
    name: "under-policy",
    enforce: "pre",
    transform(code, id) {
      const due = changes.filter((c) => c.file.test(id));
      if (due.length === 0) return null;
      for (const c of due) {
        const times = code.match(c.from)?.length ?? 0;
        if (times !== c.times) throw new Error(`${id}: ${c.from} is there ${times} times, not ${c.times}: look at the library anew`);
        code = code.replace(c.from, c.to);
      }
      return { code, map: null };
    },
  };
}

const outDir = process.env["OSSICLE_DIST"] ?? "../bin/page";

export default defineConfig({
  plugins: [underPolicy(), react()],
  build: {
    outDir,
    cssTarget: ["chrome125", "firefox128", "safari18"],
    emptyOutDir: true,
    target: "es2023",
    sourcemap: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": { target: process.env["OSSICLE_URL"] ?? "http://127.0.0.1:7717", ws: true } } },
  test: { environment: "node", isolate: false, include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true, testTimeout: 60_000 },
});
