import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import type { Plugin } from "vite";

// The page is served with style-src 'self': an element <style> that a library
// writes is refused. vaul writes one as it is loaded; what its drawer needs of it stands in
// src/style/parts.css.
function noInjectedStyles(): Plugin {
  return {
    name: "no-injected-styles",
    enforce: "pre",
    transform(code, id) {
      if (!/node_modules\/vaul\/dist\/index\.mjs/.test(id)) return null;
      const without = code.replace(/^__insertCSS\(.*\);?$/m, "");
      if (without === code) throw new Error("vaul no longer inserts its styles where they were: look at it anew");
      return { code: without, map: null };
    },
  };
}

const outDir = process.env["OSSICLE_DIST"] ?? "../internal/ui/dist";

export default defineConfig({
  plugins: [noInjectedStyles(), react()],
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
  test: { environment: "node", isolate: false, include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true },
});
