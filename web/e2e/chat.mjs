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
  // The agent may have answered before the browser knows that the message was taken.
  await until("the box is empty", async () => (await box.inputValue()) === "");

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

/** A CLI agent in a terminal: typed into, left, sized, and drawn again after a reload; the plug is the same. */
export async function terminal() {
  const page = await open(desktop, "#/sessions/term");
  const screen = page.locator(".xterm-accessibility-tree");
  const box = page.locator(".terminal textarea");
  await box.waitFor({ state: "attached" });
  await page.getByRole("button", { name: "Into the terminal" }).click();
  const typed = async (line, answer) => {
    await page.keyboard.type(line + "\n");
    await until(`${line}: ${answer}`, async () => (await screen.innerText()).replace(/\u00a0/g, " ").match(answer));
  };
  await typed("echo one$((1+1))three", /one2three/);
  // The size of the window is that of the terminal.
  await typed("stty size", /\n *\d{2,} \d{2,}/);
  const size = () => screen.innerText().then((t) => [...t.matchAll(/^ *(\d{2,}) (\d{2,})\s*$/gm)].map((m) => Number(m[2])));
  const wide = await until("its size", async () => (await size()).at(-1));
  await page.setViewportSize({ width: 800, height: 700 });
  await until("a narrower terminal", async () => {
    await page.keyboard.type("stty size\n");
    await page.waitForTimeout(300);
    return (await size()).at(-1) < wide;
  });
  // The screen may be full of sizes: what is to be drawn again is said after them.
  await typed("echo four$((2+3))six", /four5six/);
  await page.keyboard.press("F6");
  await until("F6 leaves it", () => page.getByRole("button", { name: "Into the terminal" }).evaluate((b) => b === document.activeElement));
  await accessible(page, "terminal");
  await picture(page, "terminal");

  await page.reload();
  await until("it is drawn again", async () => /four5six/.test(await screen.innerText()));

  // the same report, with the reason why nothing was handed over.
  await page.setViewportSize(desktop.viewport);
  await page.getByRole("button", { name: /MCP servers/ }).click();
  const panel = page.getByRole("dialog", { name: /MCP servers/ });
  await panel.getByText("Unavailable").first().waitFor();
  await panel.getByText(/does not know how this agent is given MCP servers/).first().waitFor();
  await close(page);
}
