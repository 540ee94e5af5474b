// What is wrong with a session, in the list and where it is open.
import assert from "node:assert/strict";
import { accessible, api, close, desktop, fits, go, open, phone, picture, until } from "./browser.mjs";

/** The badge of a session in the list, its word and its colour, and the name of its link. */
async function listed(page, id, word, tone) {
  const link = page.getByRole("link", { name: new RegExp(`^${id}\\b.*${word}`) });
  await link.waitFor();
  assert.match(await link.locator(".badge").getAttribute("class"), new RegExp(`\\b${tone}\\b`), `${id}: colour`);
}

/** An agent that is not there, and one that dies in a turn and lives again with the next. */
export async function trouble() {
  const { meta } = await api("GET", "/v1/sessions/one");
  await api("POST", "/v1/sessions", { id: "lost", dir: meta.dir, agent: ["/nosuch/agent"] });
  await api("POST", "/v1/sessions", { id: "mad", profile: "mock" });
  const page = await open(desktop, "#/sessions/lost");
  const chat = page.locator(".chat");
  await listed(page, "lost", "Agent unavailable", "red");
  await chat.getByRole("banner").or(chat.locator("header")).first().getByText("Agent unavailable").waitFor();
  await chat.getByRole("status").getByText(/The agent could not be started: .*no such file or directory\. Mend the cause/).waitFor();
  assert.equal(await chat.getByText("Idle", { exact: true }).count(), 0);
  await fits(page, "an agent that is not there");
  await accessible(page, "an agent that is not there");
  await picture(page, "trouble-unavailable");

  await go(page, "#/sessions/mad");
  const box = page.getByLabel("Message to the agent");
  await box.fill("DIE");
  await box.press("Enter");
  await listed(page, "mad", "Agent ended", "amber");
  await chat.getByRole("status").getByText(/Your next message starts it again/).waitFor();
  await chat.getByText(/The turn failed/).first().waitFor();
  await accessible(page, "an agent that died");
  await picture(page, "trouble-died");
  await box.fill("SAY well again");
  await box.press("Enter");
  await page.locator(".assistant").getByText("well again", { exact: true }).waitFor();
  await listed(page, "mad", "Idle", "grey");
  await until("nothing is wrong any more", async () => (await chat.getByText(/Your next message starts it again/).count()) === 0);
  await close(page);
  for (const id of ["lost", "mad"]) await api("DELETE", `/v1/sessions/${id}`);
}

/** A daemon that dies in a turn: the turn is told as cut off until the next one is done. */
export async function cutOff(_browser, ask) {
  await api("POST", "/v1/sessions", { id: "doomed", profile: "mock" });
  const page = await open(phone, "#/sessions/doomed");
  const note = page.locator(".chat").getByRole("status").getByText(/The last turn was cut off: ossicle ended in its midst/);
  const box = page.getByLabel("Message to the agent");
  await box.fill("SLEEP 60s");
  await page.getByRole("button", { name: "Send" }).tap();
  await page.getByText("The agent is working").waitFor();
  await until("the daemon has noted the turn", async () => !!(await api("GET", "/v1/sessions/doomed/transcript?last=true&limit=1")).run);
  await ask("kill");
  await page.locator(".chat").getByText(/^Not live/).waitFor();
  await ask("start");
  await note.waitFor();
  await page.getByText(/This turn was cut off/).waitFor();
  await api("POST", "/v1/sessions", { id: "doomed", profile: "mock" });
  await page.locator(".chat").getByText("Last turn cut off").filter({ visible: true }).waitFor();
  await note.waitFor();
  await until("it is told once", async () => (await page.getByText(/This turn was cut off/).count()) === 1);
  await accessible(page, "a turn that was cut off");
  await fits(page, "a turn that was cut off");
  await picture(page, "trouble-cut-off");
  await box.fill("SAY well again");
  await page.getByRole("button", { name: "Send" }).tap();
  await page.locator(".assistant").getByText("well again", { exact: true }).waitFor();
  await until("nothing is wrong any more", async () => (await note.count()) === 0);
  await close(page, "WebSocket", "ERR_CONNECTION_REFUSED", "Failed to load resource");
}
