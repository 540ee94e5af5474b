// A browser, and what every test of the page asks of it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const url = process.env.OSSICLE_PAGE_URL;
export const token = process.env.OSSICLE_PAGE_TOKEN;
// Bounds every wait. A busy machine takes its time.
export const patience = 60_000;

let browser;

export async function launch() {
  browser = await chromium.launch({ executablePath: process.env.OSSICLE_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  return browser;
}

export const desktop = { viewport: { width: 1440, height: 900 } };
export const tablet = { viewport: { width: 768, height: 1024 } };
export const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };

/** Opens the page by the link that the daemon prints; everything that it complains of is kept. */
export async function open(options = desktop, path = "", key = token, before = () => undefined) {
  const context = await browser.newContext({ colorScheme: "light", ...options });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.complaints = [];
  page.frames_ = { sent: [], received: [] };
  page.on("console", (m) => {
    if (m.type() === "error" || m.type() === "warning") page.complaints.push(`${m.type()}: ${m.text()}`);
  });
  page.on("pageerror", (e) => page.complaints.push(`uncaught: ${e.message}`));
  page.on("websocket", (ws) => {
    ws.on("framesent", (f) => page.frames_.sent.push(String(f.payload)));
    ws.on("framereceived", (f) => page.frames_.received.push(String(f.payload)));
  });
  await before(page);
  await page.goto(`${url}/#token=${key}`);
  await page.getByText("Live", { exact: true }).first().waitFor();
  if (path) await go(page, path);
  return page;
}

export async function go(page, path) {
  await page.evaluate((p) => (location.hash = p), path);
}

/** Closes a page, which must not have complained: a refused style or script would. */
export async function close(page, ...allowed) {
  const left = page.complaints.filter((c) => !allowed.some((a) => c.includes(a)));
  await page.context().close();
  assert.deepEqual(left, [], "the browser complains");
}

/** Holds the page to every rule of axe, or to some. */
export async function accessible(page, what, ...rules) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  const violations = await page.evaluate(async (only) => {
    const result = await globalThis.axe.run(document, { resultTypes: ["violations"], ...(only.length ? { runOnly: only } : {}) });
    return result.violations.map((v) => ({ rule: v.id, nodes: v.nodes.map((n) => n.html.slice(0, 200) + " | " + (n.failureSummary ?? "").slice(0, 300)) }));
  }, rules);
  assert.deepEqual(violations, [], `axe, ${what}`);
}

/** Nothing is wider than the window. */
export async function fits(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(over <= 0, `${what}: ${over} px wider than the window`);
}

/** Waits until a condition holds. */
export async function until(what, condition) {
  const end = Date.now() + patience;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, `not within ${patience} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25)); // a browser is asked from outside
  }
}

/** Asks the daemon's API. */
export async function api(method, path, body) {
  const answer = await fetch(url + path, { method, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text.startsWith("{") ? JSON.parse(text) : text;
}

/** A picture, where somebody wants to look at one. */
export async function picture(page, name) {
  if (process.env.OSSICLE_PICTURES) await page.screenshot({ path: `${process.env.OSSICLE_PICTURES}/${name}.png` });
}
