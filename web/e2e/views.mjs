// Every view, light and dark, wide and narrow; and what watches, inbox and feed do.
import assert from "node:assert/strict";
import { accessible, api, close, desktop, fits, go, open, phone, picture, tablet, until } from "./browser.mjs";

const views = {
  sessions: ["#/sessions", "Sessions"],
  chat: ["#/sessions/one", "one"],
  watches: ["#/watches", "Watches"],
  inbox: ["#/inbox", "Inbox"],
  feed: ["#/feed", "Live feed"],
  signals: ["#/signals", "Signals"],
  workers: ["#/workers", "Workers"],
};

export async function every() {
  for (const [size, options] of Object.entries({ 360: phone, 768: tablet, 1440: desktop })) {
    const page = await open(options);
    for (const [name, [path, heading]] of Object.entries(views)) {
      await go(page, path);
      await page.getByRole("heading", { name: heading, level: 1 }).first().waitFor();
      await page.locator("main .spinner").first().waitFor({ state: "detached" });
      await fits(page, `${name} at ${size} px`);
      // Dark colours are the same at every width.
      for (const scheme of size === "768" && !process.env.OSSICLE_PICTURES ? ["light"] : ["light", "dark"]) {
        await page.emulateMedia({ colorScheme: scheme });
        // Only colours depend on the scheme.
        await accessible(page, `${name} at ${size} px, ${scheme}`, ...(scheme === "light" ? [] : ["color-contrast"]));
        await picture(page, `${name}-${size}-${scheme}`);
      }
    }
    await close(page);
  }
}

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
  await picture(page, "filter");
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
  await picture(page, "notice");
  await item.getByRole("button", { name: "Acknowledge" }).click();
  await item.getByText("Acknowledged").first().waitFor();
  await go(page, "#/sessions/two");
  await page.getByText(/watch notes memo:\/\/notes/).first().waitFor();

  await go(page, "#/watches");
  await mine.getByRole("button", { name: "Stop notes" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop the watch" }).click();
  await mine.getByText("Nothing is watched.").waitFor();
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
  await picture(page, "signals");
  await close(page);
}

/** A sandbox comes up, is used, is released, and says why it ended; another one is killed. */
export async function workers() {
  const page = await open(desktop, "#/workers");
  await page.getByRole("heading", { name: "No sandboxes" }).waitFor();
  for (const id of ["box-1", "box-2"]) await api("POST", "/v1/sandboxes", { id, wait: true });
  const row = (id) => page.locator(".item").filter({ has: page.getByRole("heading", { name: id }) });
  await row("box-1").getByText("Running", { exact: true }).waitFor();
  assert.match(await row("box-1").innerText(), /Worked\s+\d+ s of/);
  await fits(page, "workers");
  await accessible(page, "workers");
  await picture(page, "workers");
  await row("box-1").getByRole("button", { name: "Release…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Release it" }).click();
  await row("box-1").getByText("Released", { exact: true }).waitFor();
  await row("box-1").getByText(/explicit/).first().waitFor();
  await row("box-2").getByRole("button", { name: "Kill…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill it" }).click();
  await row("box-2").getByText(/^(Failed|Released)$/).waitFor();
  assert.equal(await row("box-2").getByRole("button", { name: "Kill…" }).count(), 0);
  await close(page);
}
