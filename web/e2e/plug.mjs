// The plug of the chat: popover, drawer, and what is done from there.
import assert from "node:assert/strict";
import { accessible, api, close, desktop, fits, go, open, phone, picture, until } from "./browser.mjs";

const name = /MCP servers of this session/;

function parts(page) {
  const button = page.getByRole("button", { name });
  const panel = page.getByRole("dialog", { name });
  const expanded = () => button.getAttribute("aria-expanded");
  return { button, panel, expanded };
}

//
export async function popover() {
  const page = await open(desktop, "#/sessions/one");
  const { button, panel, expanded } = parts(page);
  await page.getByRole("heading", { name: "one", level: 1 }).waitFor();
  assert.equal(await expanded(), "false");

  // Hover opens it for the time being; it stays while the pointer is in it.
  await button.hover();
  await panel.waitFor();
  assert.equal(await expanded(), "true");
  await panel.getByRole("heading", { name: "MCP servers" }).hover();
  await page.waitForTimeout(500); // longer than it waits after the pointer has left
  assert.ok(await panel.isVisible(), "it closes under the pointer");
  await page.mouse.move(700, 500);
  await panel.waitFor({ state: "hidden" });
  assert.equal(await expanded(), "false");

  // A click pins it: leaving does nothing. A second one closes it.
  await button.click();
  await page.mouse.move(700, 500);
  await page.waitForTimeout(500); // the same
  assert.ok(await panel.isVisible(), "it is not pinned");
  await accessible(page, "popover");
  await picture(page, "popover");
  await button.click();
  await panel.waitFor({ state: "hidden" });
  await page.mouse.move(700, 500);

  // A click outside closes it.
  await button.click();
  await panel.waitFor();
  await page.mouse.click(700, 300);
  await panel.waitFor({ state: "hidden" });

  // By the keyboard: focus opens it, Tab goes on into it, Escape closes it and
  // leaves the focus on the button, without opening it again.
  await page.getByRole("heading", { name: "one", level: 1 }).click();
  await page.keyboard.press("Tab");
  await until("focus on the button", () => button.evaluate((b) => b === document.activeElement));
  await panel.waitFor();
  await page.keyboard.press("Tab");
  assert.ok(await panel.evaluate((p) => p.contains(document.activeElement)), "Tab does not lead into it");
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  assert.ok(await button.evaluate((b) => b === document.activeElement), "the focus is lost");
  assert.equal(await expanded(), "false");

  // Pinned by the keyboard, Escape closes it as well; focus that goes on closes a peek.
  await page.keyboard.press("Enter");
  await panel.waitFor();
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  await close(page);
}

//
export async function drawer() {
  const page = await open(phone, "#/sessions/one");
  const { button } = parts(page);
  await button.waitFor();
  const box = await button.boundingBox();
  assert.ok(box.width >= 44 && box.height >= 44, `the target has ${box.width} × ${box.height} px`);
  await button.tap();
  const sheet = page.getByRole("dialog", { name });
  await sheet.waitFor();
  await until("the drawer is up", async () => (await sheet.boundingBox()).y + (await sheet.boundingBox()).height <= 741);
  const long = page.getByText("a-server-with-a-name-that-is-far-too-long");
  await long.waitFor(); // the report has come
  const inside = page.locator(".drawer .inside");
  const size = await inside.evaluate((e) => ({ width: e.scrollWidth - e.clientWidth, height: e.scrollHeight - e.clientHeight, overflow: getComputedStyle(e).overflowY }));
  assert.equal(size.width, 0, "it overflows to the side");
  assert.ok(size.height > 0, "there is nothing to scroll: the test shows nothing");
  assert.equal(size.overflow, "auto");
  assert.ok((await long.boundingBox()).height > 24, "the long name does not wrap");
  assert.equal(await long.evaluate((e) => e.scrollWidth - e.clientWidth), 0, "the long name is cut");
  const rule = await page.evaluate(() => [...document.styleSheets].flatMap((s) => [...s.cssRules]).some((r) => r.selectorText === ".drawer .inside" && r.cssText.includes("safe-area-inset-bottom")));
  assert.ok(rule, "it is not inset for the safe area");
  await inside.evaluate((e) => (e.scrollTop = e.scrollHeight));
  assert.ok(await page.getByRole("button", { name: "Reset context…" }).isVisible());
  assert.equal(await page.evaluate(() => document.scrollingElement.scrollTop), 0, "the page behind scrolls");
  await fits(page, "drawer");
  await accessible(page, "drawer");
  await picture(page, "drawer");
  await page.touchscreen.tap(180, 20);
  await sheet.waitFor({ state: "hidden" });
  await close(page);
}

//
export async function rows() {
  const page = await open(desktop, "#/sessions/one");
  const { button, panel } = parts(page);
  await button.click();
  const report = await api("GET", "/v1/sessions/one/attachments");
  const attempt = report.attempts.find((a) => a.attachment_attempt_id === report.current_attachment_attempt_id);
  const words = { active: "Active", connected: "Connected", delivered: "Delivered · connection unverified", failed: "Failed", filtered: "Filtered", unavailable: "Unavailable", unknown: "Configured" };
  const tones = { active: "green", connected: "amber", delivered: "amber", failed: "red" };
  assert.ok(new Set(attempt.servers.map((s) => s.status)).size > 1, "the report has one status only: the test shows little");
  for (const s of attempt.servers) {
    const row = panel.locator(".server").filter({ has: page.locator(".name").getByText(s.name, { exact: true }) });
    assert.ok((await row.innerText()).includes(words[s.status]), `${s.name} is ${s.status}: ${await row.innerText()}`);
    assert.ok((await row.getAttribute("class")).includes(tones[s.status] ?? "grey"), `${s.name}: colour`);
    if (s.tool_count !== undefined) assert.ok((await row.innerText()).includes(`${s.tool_count} tool`), `${s.name}: tools`);
    const seen = await row.locator("time").count();
    assert.ok(seen > 0, `${s.name}: no times`);
  }
  for (const id of [attempt.session_id, attempt.execution_id, attempt.attachment_attempt_id]) await panel.getByText(id, { exact: true }).waitFor();
  await panel.getByText(/means that the agent has listed/).waitFor();
  assert.match(await panel.innerText(), /only Used proves that the model can call them/);
  await close(page);
}

//
export async function actions(canary) {
  const page = await open(desktop, "#/sessions/one");
  const { button, panel } = parts(page);
  await button.click();

  await panel.getByRole("button", { name: "Copy sanitised diagnostics" }).click();
  await panel.getByText("Copied").first().waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /"name": "ossicle"/);
  assert.ok(!copied.includes(canary), "a secret is copied");

  // The endpoint test says what it is about, and changes no status.
  const row = panel.locator(".server").filter({ has: page.locator(".name").getByText("memo", { exact: true }) });
  const status = await row.locator(".badge").first().innerText();
  await panel.getByRole("button", { name: "Test endpoint of memo" }).click();
  await row.getByText(/Reachable from here/).waitFor();
  await row.getByText(/does not say what the agent does/).waitFor();
  assert.equal(await row.locator(".badge").first().innerText(), status);
  const asked = page.frames_.sent.map((f) => JSON.parse(f)).find((f) => f.action === "session.mcp_test_endpoint");
  assert.deepEqual(Object.keys(asked).sort(), ["action", "id", "server_name", "session_id"]);

  // A warning comes first, and nothing is fetched before it was taken.
  const fetched = () => page.frames_.sent.some((f) => f.includes("mcp_recent_agent_output"));
  await panel.getByRole("button", { name: /View recent agent output/ }).click();
  await panel.getByText(/it may hold keys/).waitFor();
  await accessible(page, "output warning");
  assert.ok(!fetched(), "fetched before the warning was taken");
  await panel.getByRole("button", { name: "Show it" }).click();
  await panel.getByText(/They do not go on by themselves|has written nothing|Not live/).first().waitFor();
  assert.ok(fetched());
  await panel.getByRole("button", { name: "Hide it" }).click();

  await panel.getByRole("button", { name: "Open MCP settings" }).click();
  const settings = page.getByRole("dialog", { name: "MCP settings" });
  await settings.getByText("mcpServers", { exact: true }).waitFor();
  await accessible(page, "settings");
  await page.keyboard.press("Escape");
  await settings.waitFor({ state: "hidden" });

  // A reset is asked for first, and begins another attempt.
  const before = (await api("GET", "/v1/sessions/one/attachments")).current_attachment_attempt_id;
  await panel.waitFor(); // it was pinned
  await panel.getByRole("button", { name: "Reset context…" }).click();
  const question = page.getByRole("dialog", { name: "Reset the context?" });
  await accessible(page, "reset question");
  await question.getByRole("button", { name: "Reset the context" }).click();
  await question.waitFor({ state: "hidden" });
  await until("another attempt", async () => (await api("GET", "/v1/sessions/one/attachments")).current_attachment_attempt_id !== before);
  const after = (await api("GET", "/v1/sessions/one/attachments")).current_attachment_attempt_id;
  await button.click();
  await panel.getByText(after, { exact: true }).waitFor();

  for (const f of [...page.frames_.sent, ...page.frames_.received]) assert.ok(!f.includes(canary), "a secret is on the wire");
  await close(page);
}

// a session without a report is neutral, and none shows that of another:
// while switching, after a reload, and when one is removed.
export async function apart() {
  const page = await open(desktop, "#/sessions/one");
  const { button, panel } = parts(page);
  const attempts = {};
  for (const id of ["one", "two"]) attempts[id] = (await api("GET", `/v1/sessions/${id}/attachments`)).current_attachment_attempt_id;
  const shows = async (id, other) => {
    await page.getByRole("heading", { name: id, level: 1 }).waitFor();
    await button.click();
    await panel.getByText(attempts[id], { exact: true }).waitFor();
    assert.ok(!(await panel.innerText()).includes(attempts[other]), `${id} shows the report of ${other}`);
  };
  await shows("one", "two");
  await go(page, "#/sessions/two");
  await shows("two", "one");
  await go(page, "#/sessions/one");
  await shows("one", "two");
  await page.reload();
  await shows("one", "two");

  await api("POST", "/v1/sessions", { id: "fresh", profile: "mock" });
  await go(page, "#/sessions/fresh");
  await page.getByRole("heading", { name: "fresh", level: 1 }).waitFor();
  await button.click();
  await panel.getByText(/Nothing is known yet/).waitFor();
  assert.equal(await panel.locator(".server").count(), 0, "rows without a report");
  const neutral = await button.evaluate((b) => b.className);
  await api("DELETE", "/v1/sessions/fresh");
  await page.getByText(/No such session|is not there|does not run/).first().waitFor();
  await go(page, "#/sessions/one");
  await shows("one", "two");
  // The button itself is the same in every state.
  assert.equal(await button.evaluate((b) => b.className), neutral);
  await close(page);
}
