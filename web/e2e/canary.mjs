// Shows a session to whoever looks for secrets: prints what a browser has got of it and
// what it hands on, as one JSON object; see internal/app.
import { close, desktop, go, launch, open, until } from "./browser.mjs";

const id = process.env.OSSICLE_SESSION;
const name = /MCP servers of this session/;

const browser = await launch();
const page = await open(desktop, `#/sessions/${id}`);
await page.getByRole("heading", { name: id, level: 1 }).waitFor();
const panel = page.getByRole("dialog", { name });
await page.getByRole("button", { name }).click();
await panel.getByRole("button", { name: "Copy sanitised diagnostics" }).click();
await panel.getByText("Copied").first().waitFor();
const copied = await page.evaluate(() => navigator.clipboard.readText());

// All that the panel has: what a test of an endpoint says, and what can be folded out.
await panel.getByRole("button", { name: "Test endpoint of gone" }).click();
await panel.getByText(/does not say what the agent does/).first().waitFor();
await panel.evaluate((p) => p.querySelectorAll("details").forEach((d) => (d.open = true)));
await until("the panel is drawn", () => panel.evaluate((p) => new Promise((done) => requestAnimationFrame(() => done(p.querySelectorAll(".server").length > 0)))));
const drawn = { panel: await panel.evaluate((p) => p.outerHTML), page: await page.evaluate(() => document.documentElement.outerHTML) };
await page.keyboard.press("Escape");
// The transcript, from its beginning: only what is in sight is drawn.
await until("the beginning of the transcript", () => page.locator(".transcript").evaluate((t) => {
  t.scrollTop = 0;
  return t.querySelector("[aria-posinset='1']") !== null;
}));
drawn.page += await page.evaluate(() => document.documentElement.outerHTML);
for (const path of ["#/watches", "#/inbox", "#/sessions"]) {
  await go(page, path);
  await page.getByRole("heading", { level: 1 }).first().waitFor();
  drawn.page += await page.evaluate(() => document.documentElement.outerHTML);
}
const { sent, received } = page.frames_;
console.log(JSON.stringify({ copied, ...drawn, sent, received }));
await close(page);
await browser.close();
