// Getting in, and getting back.
import assert from "node:assert/strict";
import { accessible, api, close, desktop, fits, go, open, phone, picture, token, until, url } from "./browser.mjs";

/** The link lets one in and leaves no trace; without it the page asks, and a wrong token is told. */
export async function entry(browser) {
  const context = await browser.newContext(phone);
  const page = await context.newPage();
  await page.goto(url);
  await page.getByLabel("Token or link").fill("wrong");
  await fits(page, "the question for a token");
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await accessible(page, `the question for a token, ${colorScheme}`);
    await picture(page, `token-${colorScheme}`);
  }
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByText("The daemon did not take the token").waitFor();
  await page.getByLabel("Token or link").fill(`${url}/#token=${token}`);
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByText("Live", { exact: true }).first().waitFor();
  await context.close();

  const linked = await open(desktop);
  assert.ok(!linked.url().includes(token), "the token stays in the address");
  await linked.reload();
  await linked.getByText("Live", { exact: true }).first().waitFor();
  // The colours are the system's, or what the switch says, also after a reload.
  const background = () => linked.evaluate(() => getComputedStyle(document.body.parentElement).backgroundColor);
  const light = await background();
  await linked.getByRole("button", { name: "Colours: system. Change to light" }).click();
  assert.equal(await background(), light);
  await linked.getByRole("button", { name: "Colours: light. Change to dark" }).click();
  const dark = await background();
  assert.notEqual(dark, light);
  await linked.reload();
  await linked.getByText("Live", { exact: true }).first().waitFor();
  assert.equal(await background(), dark);
  await linked.getByRole("button", { name: "Colours: dark. Change to system" }).click();
  await linked.getByRole("button", { name: /Forget the token/ }).click();
  await linked.getByLabel("Token or link").waitFor();
  assert.equal(await linked.evaluate(() => Object.values(localStorage).join()), "");
  await close(linked);
}

/** A token for one session and one topic: the page shows what it may see, and says what it may not. */
export async function limited(_browser, ask) {
  const page = await open(desktop, "#/sessions", await ask("token"));
  const list = page.getByRole("region", { name: "List of sessions" });
  await list.getByRole("link", { name: /one/ }).waitFor();
  assert.equal(await list.getByRole("link").count(), 1, "it lists sessions of others");
  assert.equal(await page.getByRole("button", { name: "New" }).count(), 0);
  await go(page, "#/sessions/two");
  await page.getByText("Your token gives no right to a session “two”.").waitFor();
  await go(page, "#/sessions/nobody");
  await page.getByText("Your token gives no right to a session “nobody”.").waitFor(); // and not whether there is one
  for (const [path, words] of [["#/signals", "Your token gives no right"], ["#/workers", "Your token gives no right"]]) {
    await go(page, path);
    await page.getByText(words).first().waitFor();
    assert.equal(await page.locator("main").getByText(/^\d+ (alive|waiting)$/).count(), 0, "it counts what it may not see");
    await accessible(page, `${path} without the right`);
  }
  await api("POST", "/v1/topics/secrets/events", { data: "not for everybody" });
  await api("POST", "/v1/topics/public/events", { data: "for everybody" });
  await go(page, "#/feed");
  await page.locator(".head").getByText("Live", { exact: true }).waitFor();
  await api("POST", "/v1/topics/secrets/events", { data: "not for everybody" });
  await api("POST", "/v1/topics/public/events", { data: "again for everybody" });
  await page.getByText("again for everybody").waitFor();
  assert.equal(await page.getByText("not for everybody").count(), 0);
  await close(page);
}

/** A daemon that dies and comes back: the page says so, subscribes again and has lost nothing. */
export async function again(_browser, ask) {
  const page = await open(desktop, "#/sessions/one");
  await page.getByText("you said before").first().waitFor();
  await page.getByLabel("Message to the agent").fill("a draft that is not sent");
  const other = await open(desktop, "#/sessions/two");
  await other.getByRole("heading", { name: "two", level: 1 }).waitFor();
  // What the pages load of themselves is there: the list, and the code of every view.
  for (const p of [page, other]) {
    await p.getByRole("region", { name: "List of sessions" }).getByRole("link", { name: /^term\b/ }).waitFor();
    for (const view of ["Watches", "Inbox", "Feed", "Signals", "Workers"]) {
      await until(`the code of ${view}`, () => p.evaluate((v) => performance.getEntriesByType("resource").some((e) => e.name.includes(`/assets/${v}View-`) && e.responseEnd > 0), view));
    }
  }
  await ask("kill");
  // A part of the page that was never loaded is awaited, and then comes by itself.
  await other.getByText("Reconnecting…").waitFor();
  await go(other, "#/sessions/term");
  await other.getByRole("heading", { name: "The daemon is away" }).waitFor();
  assert.equal(await other.getByRole("button", { name: /again/ }).count(), 0);
  await accessible(other, "a view that cannot be loaded");
  await picture(other, "away");
  await page.getByText("Reconnecting…").waitFor();
  await page.locator(".chat").getByText(/^Not live/).waitFor();
  // The bar has room for these longer words, and views come up that were not opened before.
  const right = (box) => box.x + box.width;
  assert.ok(right(await page.getByRole("button", { name: /Forget the token/ }).boundingBox()) <= right(await page.locator("header.top").boundingBox()), "the bar is too narrow");
  await picture(page, "reconnecting");
  await go(page, "#/feed");
  await page.getByRole("heading", { name: "Live feed", level: 1 }).waitFor();
  await go(page, "#/sessions/one");
  await ask("start");
  await other.getByText(/This session does not run/).waitFor();
  assert.equal(await other.getByRole("heading", { name: "The daemon is away" }).count(), 0);
  // The last one is from axe, which asks for the style sheets itself.
  await close(other, "WebSocket", "ERR_CONNECTION_REFUSED", "Failed to load resource", "Failed to fetch dynamically imported module", "Unable to preload CSS", "load preload assets");
  await page.getByText("Live", { exact: true }).first().waitFor();
  await page.getByText("you said before").first().waitFor();
  await page.getByText(/This session does not run/).waitFor();
  await page.reload();
  await page.getByText("you said before").first().waitFor();
  await go(page, "#/sessions");
  await close(page, "WebSocket", "ERR_CONNECTION_REFUSED", "Failed to load resource");
}
