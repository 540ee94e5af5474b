// What watches, inbox, feed, signals and sandboxes do.
import assert from "node:assert/strict";
import { accessible, api, close, desktop, fits, go, open, phone, picture, until } from "./browser.mjs";
import { inSight } from "./scenes.mjs";

/** A watch is tried, started, heard of, and stopped; its notice goes through the inbox. */
export async function watch() {
  const page = await open(desktop, "#/watches");
  await page.getByRole("button", { name: "Start a watch" }).first().click();
  const dialog = page.getByRole("dialog", { name: "Start a watch" });
  await dialog.getByLabel("Session").selectOption("two");
  await dialog.getByRole("button", { name: /memo:\/\/notes/ }).click();
  await dialog.getByLabel("Name").fill("notes");
  const filter = dialog.getByLabel(/^Filter/);
  await filter.fill("event[");
  await dialog.getByRole("button", { name: "Try the filter" }).click();
  await dialog.getByText(/cannot be started/).waitFor();
  await filter.fill('event["type"] + " " + event["key"]');
  await dialog.getByRole("button", { name: "Try the filter" }).click();
  await dialog.getByText("The filter runs.").waitFor();
  await dialog.getByText(/added sample/i).first().waitFor();
  await accessible(page, "a filter that was tried");
  // On a phone what it says comes into sight.
  await page.setViewportSize(phone.viewport);
  await filter.fill('event["key"]');
  assert.equal(await dialog.getByText("The filter runs.").count(), 0, "what is said is of another filter");
  await dialog.getByRole("button", { name: "Try the filter" }).click();
  await inSight(page, dialog.getByText("The filter runs."), "what the filter says");
  await page.setViewportSize(desktop.viewport);
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.waitFor({ state: "hidden" });
  const mine = page.getByRole("region", { name: "Watches of two" });
  await mine.getByText("memo://notes").waitFor();
  await mine.getByText("Watching").waitFor();

  // A change in the world reaches the agent as an event, and stands in the inbox.
  await api("POST", "/v1/sessions/two/prompt", { text: 'CALL run_code {"code":"await memo_set(key=\\"k\\", value=\\"v\\")"}', wait: true });
  await go(page, "#/inbox");
  const item = page.locator("details").filter({ hasText: "notes" }).first();
  await until("it was seen", async () => /Seen|Acknowledged/.test(await item.innerText().catch(() => "")));
  await page.setViewportSize(phone.viewport);
  assert.ok((await item.locator("summary time").boundingBox()).height < 26, "a time is broken in two");
  await page.setViewportSize(desktop.viewport);
  await item.locator("summary").click();
  await item.getByRole("list", { name: "Steps of its delivery" }).waitFor();
  await accessible(page, "a notice and its steps");
  await item.getByRole("button", { name: "Acknowledge" }).click();
  await item.getByText("Acknowledged").first().waitFor();
  // What a filter finds is the daemon's, and says so.
  await page.getByLabel("State", { exact: true }).selectOption("dead");
  await page.getByText("Nothing fits").waitFor();
  await page.getByRole("button", { name: "Show all notices" }).click();
  await page.getByLabel("State", { exact: true }).selectOption("acked");
  await page.getByText(/notices? that fits?, of all that the daemon keeps/).waitFor();
  await item.getByText("Acknowledged").first().waitFor();
  await go(page, "#/sessions/two");
  await page.getByText(/watch notes memo:\/\/notes/).first().waitFor();

  await go(page, "#/watches");
  await mine.getByRole("button", { name: "Stop notes" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop the watch" }).click();
  await mine.waitFor({ state: "detached" });
  await page.getByText("Nothing is watched").waitFor();
  await until("the keyboard in the list", () => page.getByRole("region", { name: "Watches by session" }).evaluate((e) => e === document.activeElement));
  await page.getByText(/sessions watch nothing/).click();
  await page.getByRole("button", { name: "Start a watch in two" }).waitFor();
  await close(page);
}

/** Events come as they are published; a pause lets go, and going on misses none. */
export async function feed() {
  const page = await open(desktop, "#/feed");
  await page.locator(".head").getByText("Live", { exact: true }).waitFor();
  const publish = (n) => api("POST", "/v1/topics/builds/events", { type: "done", key: "k" + n, data: { n, text: "<img src=x onerror=alert(1)>" } });
  await publish(1);
  await page.getByText(/builds · done · k1/).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused", { exact: true }).waitFor();
  await publish(2);
  await publish(3);
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText(/builds · done · k3/).waitFor();
  await page.getByText(/builds · done · k2/).waitFor();
  const rows = await page.locator(".event-row").allInnerTexts();
  assert.equal(rows.length, 3, rows.join("\n"));
  await page.locator(".event-row summary").first().click();
  await page.getByRole("region", { name: /Data of event/ }).waitFor();
  assert.equal(await page.locator(".event-row img").count(), 0);
  await accessible(page, "an open event");
  await close(page);
}

/** Two agents of one collaboration: who is there, what they tell each other, and what all share. */
export async function signals(_browser, ask) {
  const page = await open(phone, "#/signals");
  await page.getByRole("link", { name: /20260101_000000_abcdef01/ }).tap();
  await page.getByRole("heading", { name: "20260101_000000_abcdef01", level: 1 }).waitFor();
  await ask("signal");
  await page.getByText("<img src=x onerror=alert(1)> the schema does not fit").waitFor();
  await page.getByText("Warns").waitFor();
  await api("POST", "/v1/sessions/two/prompt", { text: `CALL write_whiteboard ${JSON.stringify({ key: "plan", value: "schema first" })}`, wait: true });
  await page.getByText("schema first").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  await fits(page, "signals");
  await accessible(page, "signals");
  await close(page);
}

/** A sandbox comes up, is used, is released, and says why it ended; another one is killed. */
export async function workers() {
  const page = await open(desktop, "#/workers");
  await page.getByRole("heading", { name: "No sandboxes" }).waitFor();
  // One is started from here, and says how it comes up.
  await page.getByRole("button", { name: "Start the first one" }).click();
  const dialog = page.getByRole("dialog", { name: "Start a sandbox" });
  await dialog.getByLabel("Profile").selectOption("light");
  await dialog.getByLabel("Name").fill("not a name/");
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Name").fill("box-1");
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await dialog.waitFor({ state: "hidden" });
  await api("POST", "/v1/sandboxes", { id: "box-2", wait: true });
  const row = (id) => page.locator(".item").filter({ has: page.getByRole("heading", { name: id }) });
  await row("box-1").getByText("Running", { exact: true }).waitFor();
  await until("its clock", async () => /Worker up\s+(\d+ min ?)?(\d+ s )?of/.test(await row("box-1").innerText()));
  await fits(page, "workers");
  await accessible(page, "workers");
  await row("box-1").getByRole("button", { name: "Release…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Release it" }).click();
  await row("box-1").getByText("Released", { exact: true }).waitFor();
  await row("box-1").getByText("whoever asked for it was done").waitFor();
  await row("box-2").getByRole("button", { name: "Kill…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill it" }).click();
  await row("box-2").getByText("Killed", { exact: true }).waitFor();
  await until("the keyboard in the list", () => page.getByRole("region", { name: "Sandboxes" }).evaluate((e) => e === document.activeElement));
  assert.equal(await row("box-2").getByText(/Failed|sandbox_exited/).count(), 0);
  assert.equal(await row("box-2").getByRole("button", { name: "Kill…" }).count(), 0);
  await close(page, "status of 400"); // of the name that is none
}
