// Talking to an agent.
import assert from "node:assert/strict";
import { accessible, close, desktop, open, phone, picture, until } from "./browser.mjs";

export async function chat() {
  const page = await open(desktop, "#/sessions/one");
  const box = page.getByLabel("Message to the agent");
  await box.fill("SAY before");
  await box.press("Shift+Enter");
  assert.equal(await box.inputValue(), "SAY before\n");
  await box.fill("before");
  await box.press("Enter");
  await page.getByText("you said before").first().waitFor();
  assert.equal(await box.inputValue(), "");

  // A permission request, answered by what it means.
  await box.fill("CALL list_resources {}");
  await box.press("Enter");
  const ask = page.getByRole("region", { name: "The agent asks for permission" });
  await ask.waitFor();
  await accessible(page, "permission request");
  await picture(page, "permission");
  await ask.getByRole("button", { name: /^Allow once/ }).click();
  await ask.waitFor({ state: "hidden" });
  await page.getByText(/tool said/).first().waitFor();
  await page.getByText(/Permission for/).first().waitFor();
  const tool = page.locator("details").filter({ hasText: "list_resources" }).first();
  await tool.locator("summary").click();
  await tool.getByText("Output").waitFor();

  // Busy says what is going on and for how long, and can be cancelled.
  await box.fill("SLEEP 30s");
  await box.press("Enter");
  await page.getByText("The agent is working").waitFor();
  await until("a duration", async () => /\b[1-9]\d* s\b/.test(await page.locator(".activity").innerText()));
  await page.getByRole("button", { name: "Cancel the turn" }).click();
  await page.getByText("Enter sends, Shift+Enter begins a new line.").waitFor();
  await page.getByText("Cancelled", { exact: false }).first().waitFor();

  // A draft and the transcript outlive a reload.
  await box.fill("a draft");
  await page.reload();
  await page.getByText("you said before").first().waitFor();
  assert.equal(await box.inputValue(), "a draft");
  await box.fill("");

  // A file of the transcript.
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "More about this session" }).click();
  await accessible(page, "menu of a session");
  await page.getByRole("menuitem", { name: "Export the transcript" }).click();
  assert.equal((await saved).suggestedFilename(), "one.ndjson");
  await close(page);
}

/** A session from a profile, and its end, on a phone. */
export async function life() {
  const page = await open(phone, "#/sessions");
  await page.getByRole("button", { name: "New" }).tap();
  const dialog = page.getByRole("dialog", { name: "New session" });
  await dialog.getByLabel("Start").selectOption("profile");
  await dialog.getByLabel("Name").fill("fromphone");
  await accessible(page, "new session");
  await dialog.getByRole("button", { name: "Start" }).tap();
  await page.getByRole("heading", { name: "fromphone", level: 1 }).waitFor();
  await page.getByLabel("Message to the agent").fill("SAY hello from a phone");
  await page.getByRole("button", { name: "Send" }).tap();
  await page.locator(".assistant").getByText("hello from a phone", { exact: true }).waitFor();
  await picture(page, "phone");
  await page.getByRole("button", { name: "More about this session" }).tap();
  await page.getByRole("menuitem", { name: "Remove…" }).tap();
  await page.getByRole("dialog").getByRole("button", { name: "Remove for good" }).tap();
  await page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
  await until("the session is gone from the list", async () => (await page.getByText("fromphone", { exact: true }).count()) === 0);
  await close(page);
}
