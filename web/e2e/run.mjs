// Runs the browser tests against a daemon that somebody else has started; see
// internal/interop. Lines on standard output: "ok NAME", "not ok NAME" with the cause,
// or "please WORD", which waits for a line on standard input.
import { createInterface } from "node:readline";
import { launch } from "./browser.mjs";
import { chat, life, terminal } from "./chat.mjs";
import { again, entry, limited } from "./entry.mjs";
import { actions, apart, drawer, popover, rows } from "./plug.mjs";
import { every } from "./scenes.mjs";
import { cutOff, trouble } from "./trouble.mjs";
import { feed, signals, watch, workers } from "./views.mjs";

const canary = process.env.OSSICLE_CANARY;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(word) {
  console.log("please " + word);
  return (await lines.next()).value;
}

// A signal lies in the inbox of the agent that chat talks to, which would hear it in
// the midst of that.
const { promise: chatted, done: hasChatted } = later();
const afterChat = (test) => async (...args) => {
  if (wanted("chat")) await chatted;
  await test(...args);
};

function later() {
  let done;
  const promise = new Promise((resolve) => (done = resolve));
  return { promise, done };
}

// Two at a time, since a browser mostly waits; the last ones are alone.
const chains = [
  { entry, chat: (...args) => chat(...args).finally(hasChatted), popover, drawer, rows, actions: () => actions(canary), apart, terminal, life },
  { feed, limited, watch, signals: afterChat(signals), workers, trouble, every: afterChat(every) },
];
const alone = { again, cutOff };

const browser = await launch();
const only = (process.env.OSSICLE_CASES ?? "").split(",").filter(Boolean); // all without it
let failed = false;

function wanted(name) {
  return only.length === 0 || only.includes(name);
}

async function run(tests) {
  for (const [name, test] of Object.entries(tests)) {
    if (!wanted(name)) continue;
    const start = Date.now();
    try {
      await test(browser, ask);
      console.log(`ok ${name} (${Date.now() - start} ms)`);
    } catch (e) {
      failed = true;
      console.log(`not ok ${name}: ${String(e?.stack ?? e).replaceAll("\n", "\n  ")}`);
    }
  }
}

await Promise.all(chains.map(run));
await run(alone);
await browser.close();
process.exit(failed ? 1 : 0);
