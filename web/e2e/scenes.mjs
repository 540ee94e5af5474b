// Every view with something in it, light and dark, at 360, 768 and 1440 px, and what
// opens in it at 360 and 1440: held to the rules of axe, and nothing wider than the
// window. With OSSICLE_PICTURES=DIR a picture of each is left there, at all three
// widths, to be looked at.
//
// What a daemon of a test cannot have all at once (each status of a server, each state
// of a notice and of a sandbox) is put into what it sends, in its own shapes.
import { fileURLToPath } from "node:url";
import { accessible, api, close, desktop, fits, go, open, phone, picture, tablet, until } from "./browser.mjs";

const ago = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();

/** What the daemon has: sessions in several states, watches, events, signals. */
async function fill(ask) {
  const agent = [process.execPath, fileURLToPath(new URL("./agent.mjs", import.meta.url))];
  const { meta } = await api("GET", "/v1/sessions/one");
  const start = (id, more = {}) => api("POST", "/v1/sessions", { id, dir: meta.dir, agent, policy: "ask", ...more });
  // An agent that takes none of the tools that it is given is waited for: all at once.
  const prompt = async (id, body) => {
    await start(id);
    await api("POST", `/v1/sessions/${id}/prompt`, body);
  };
  const shown = prompt("shop-orders", { text: "Why is the list of a customer's orders so slow?\n\nSHOW me what you find.", wait: true });
  await prompt("working", { text: "WORK on it" });
  await prompt("asking", { text: "ASK before you drop anything" });
  await start("shell", { agent: ["sh"], passthrough: true });
  await start("a-session-with-a-name-that-is-too-long-for-a-phone");
  for (const [name, uri, on_event] of [["notes", "memo://notes", ""], ["only-new", "memo://notes", 'event["key"] if event["type"] == "ADDED" else None']]) await api("POST", "/v1/sessions/two/watches", { name, uri, on_event });
  await api("POST", "/v1/sessions/two/prompt", { text: 'CALL run_code {"code":"await memo_set(key=\\"todo\\", value=\\"buy tea\\")"}', wait: true });
  for (const n of [1, 2, 3]) await api("POST", "/v1/topics/builds/events", { type: "done", key: "k" + n, data: { n, branch: "main", text: "all 1,204 tests have passed, which took 3 min 12 s on the runner linux-amd64-large-2" } });
  await api("POST", "/v1/sessions/two/prompt", { text: `CALL write_whiteboard ${JSON.stringify({ key: "plan", value: "1. schema\n2. index\n3. tests" })}`, wait: true });
  await ask("signal");
  await shown;
}

// A server of each status.
function servers() {
  const at = (m) => ({ at: ago(m) });
  const handed = { server_resolved: at(9), server_delivered: at(8) };
  return [
    { name: "ossicle", source: "builtin", transport: "http", status: "active", tool_count: 12, connected_at: ago(8), tools_listed_at: ago(8), last_used_at: ago(1), last_tool: "run_code", client: { name: "shown", version: "1.2.3", mcp_protocol_version: "2026-07-28" }, tool_catalogue: { total: 2, tools: [{ name: "run_code", description: "Runs Python in a sandbox" }, { name: "watch_start", description: "Begins to watch a resource" }] }, endpoint_test: { tested_at: ago(3), succeeded: true, tool_count: 12 }, steps: handed },
    { name: "board", source: "profile", transport: "http", target: "https://board.example/mcp", status: "connected", connected_at: ago(7), steps: handed },
    { name: "memo", source: "profile", transport: "stdio", target: "memo", status: "delivered", steps: handed },
    { name: "tickets", source: "agent", transport: "http", target: "https://tickets.example/a/long/address/that/has/to/be/broken/mcp", status: "failed", reason_code: "auth_required", summary: "401 Unauthorized", failed_at: ago(6), steps: handed, endpoint_test: { tested_at: ago(2), succeeded: false, reason_code: "http_status", summary: "401" } },
    { name: "legacy-feed", source: "profile", transport: "sse", target: "http://127.0.0.1:9/sse", status: "filtered", reason_code: "transport_unsupported_advertised", steps: { server_resolved: at(9), server_filtered: { at: ago(9), reason_code: "transport_unsupported_advertised" } } },
    { name: "shell", source: "profile", status: "unavailable", reason_code: "no_passthrough_strategy", steps: { server_resolved: at(9) } },
    { name: "later", source: "profile", transport: "stdio", status: "unknown", steps: { server_resolved: at(9) } },
  ];
}

function report(session_id) {
  const attempt = { session_id, execution_id: "exec_01J9ZK3M2Q", attachment_attempt_id: "att_01J9ZK3M2R", started_at: ago(9), updated_at: ago(1), session_accepted_at: ago(8), servers: servers() };
  return { schema_version: 1, current_attachment_attempt_id: attempt.attachment_attempt_id, attempts: [attempt] };
}

function notices() {
  const of = (i, state, source, title, text) => ({ id: "n_" + state, agent: "shop-orders", source, title, text, created_at: ago(i), state, state_at: ago(i), offers: i % 3, meta: { uri: "k8s://apps/deployments/shop" }, ...(state === "persisted" ? { due: ago(-2) } : {}) });
  return [
    of(1, "persisted", "watch", "watch deploy k8s://apps/deployments/shop", "MODIFIED shop: 2 of 3 replicas are ready"),
    of(2, "notified", "signal", "warn from reviewer", "the schema does not fit"),
    of(3, "woken", "feed", "topic builds", "done k3"),
    of(4, "seen", "watch", "watch notes memo://notes", "ADDED todo"),
    of(5, "acked", "worker", "sandbox box-2", "its worker has ended"),
    of(6, "suppressed", "watch", "watch notes memo://notes", "REMOVED todo"),
    of(70, "expired", "system", "reminder", "look at the build again"),
    of(80, "dead", "signal", "query from planner, with a title that is far too long for one line of a narrow phone", "how far are you?"),
  ];
}

function sandboxes() {
  const of = (id, state, more) => ({ id, profile: "light", driver: "local", tier: "bubblewrap", state, created: ago(12), ...more });
  const clocks = { idle_seconds: 14, idle_budget_seconds: 1800, exec_seconds: 187, exec_budget_seconds: 14400, heartbeat_age_seconds: 2, here: true };
  return [
    of("box-7f3a", "running", { ...clocks, agent: "shop-orders", active_calls: 1, workspace_bytes: 5_400_000 }),
    of("box-20c1", "awaiting_dial", { driver: "kubernetes", profile: "cluster", tier: undefined }),
    of("box-9a44", "readying", {}),
    of("box-51be", "detached", { ...clocks, heartbeat_age_seconds: 41 }),
    of("box-e002", "releasing", clocks),
    of("box-1d7d", "released", { release: "explicit", outputs_flushed: true, outputs: [{ uri: "artifact://a", name: "report.md", size: 812 }] }),
    of("box-aa19", "failed", { failure: "channel_lost", detail: "no worker came within 60 s", outputs_flushed: false }),
  ];
}

/** Puts what no daemon of a test has into the first states of topics. */
function enrich(page) {
  return page.routeWebSocket(/\/v1\/live/, (ws) => {
    const server = ws.connectToServer();
    const asked = new Map();
    ws.onMessage((text) => {
      const m = JSON.parse(text);
      if (m.action === "subscribe") asked.set(m.id, m.topic);
      server.send(text);
    });
    server.onMessage((text) => {
      const m = JSON.parse(text);
      const topic = asked.get(m.id);
      if (m.result && topic === "session:shop-orders") m.result.history = report("shop-orders");
      else if (m.result && topic === "inbox") m.result.notices = [...notices(), ...m.result.notices];
      else if (m.result && topic === "sandboxes") m.result.sandboxes = sandboxes();
      else return ws.send(text);
      ws.send(JSON.stringify(m));
    });
  });
}

const heading = (page, name) => page.getByRole("heading", { name, level: 1 }).first().waitFor();
const plug = (page) => page.getByRole("button", { name: /MCP servers of this session/ });

// Each: where, and what is done there until it is to be looked at. What it leaves open
// is closed by Escape.
const scenes = {
  sessions: ["#/sessions", (p) => heading(p, "Sessions")],
  async chat(p) {
    await go(p, "#/sessions/shop-orders");
    await p.getByText("is missing an index").or(p.getByText("was missing an index")).first().waitFor();
  },
  async tool(p) {
    await p.locator("details").filter({ hasText: "Run the tests of billing" }).locator("summary").click();
    await p.getByText("total is 12, want 13").waitFor();
  },
  async plug(p) {
    await plug(p).click();
    await p.getByText("legacy-feed").waitFor();
    await p.locator(".drawer, .plug-popover").evaluate((e) => Promise.all(e.getAnimations().map((a) => a.finished)));
  },
  async "plug-middle"(p) {
    await plug(p).click();
    await p.getByText("tickets", { exact: true }).evaluate((e) => e.scrollIntoView({ block: "start" }));
    await p.locator(".drawer, .plug-popover").evaluate((e) => Promise.all(e.getAnimations().map((a) => a.finished)));
  },
  async "plug-end"(p) {
    await plug(p).click();
    await p.getByLabel("Identities of this attempt").scrollIntoViewIfNeeded();
    await p.locator(".drawer, .plug-popover").evaluate((e) => Promise.all(e.getAnimations().map((a) => a.finished)));
  },
  working: ["#/sessions/working", (p) => p.getByText("which takes a while").first().waitFor()],
  asking: ["#/sessions/asking", (p) => p.getByRole("region", { name: "The agent asks for permission" }).waitFor()],
  events: ["#/sessions/two", (p) => p.getByText(/watch notes memo/).first().waitFor()],
  terminal: ["#/sessions/shell", (p) => p.locator(".terminal textarea").waitFor({ state: "attached" })],
  gone: ["#/sessions/nobody", (p) => heading(p, "No such session")],
  async "new-session"(p) {
    await go(p, "#/sessions");
    await p.getByRole("button", { name: "New" }).click();
    await p.getByRole("dialog", { name: "New session" }).waitFor();
  },
  watches: ["#/watches", (p) => p.getByText("only-new").waitFor()],
  async "watches-rest"(p) {
    await p.getByText(/sessions watch nothing/).click();
    await p.getByRole("button", { name: "Start a watch in asking" }).scrollIntoViewIfNeeded();
  },
  async filter(p) {
    await go(p, "#/watches");
    await p.getByRole("button", { name: "Start a watch", exact: true }).click();
    const dialog = p.getByRole("dialog", { name: "Start a watch" });
    await dialog.getByLabel("Session").selectOption("two");
    await dialog.getByRole("button", { name: /memo:\/\/notes/ }).click();
    await dialog.getByLabel("Name").fill("todo");
    await dialog.getByLabel(/^Filter/).fill('event["type"] + " " + event["key"]');
    await dialog.getByRole("button", { name: "Try the filter" }).click();
    await dialog.getByText("The filter runs.").waitFor();
    await inSight(p, dialog.getByText("The filter runs."), "what the filter says");
  },
  inbox: ["#/inbox", (p) => p.locator(".badge").getByText("Undeliverable").waitFor()],
  async notice(p) {
    await p.locator("details").filter({ hasText: "for two" }).first().locator("summary").click();
    await p.getByRole("list", { name: "Steps of its delivery" }).first().scrollIntoViewIfNeeded();
  },
  async "inbox-found"(p) {
    await go(p, "#/watches"); // not the feed: its stream may be opened once before its own scene
    await heading(p, "Watches");
    await go(p, "#/inbox");
    await p.getByLabel("State", { exact: true }).selectOption("dead");
    await p.getByText("Nothing fits").waitFor();
  },
  async feed(p) {
    await go(p, "#/feed");
    await p.getByText(/are missing here/).first().waitFor();
    await p.getByText(/builds · done · k3/).first().waitFor();
  },
  async event(p) {
    await p.locator(".event-row").filter({ hasText: "k3" }).first().locator("summary").click();
    await p.getByRole("region", { name: /Data of event/ }).first().waitFor();
  },
  signals: ["#/signals", (p) => p.getByRole("link", { name: /20260101_000000_abcdef01/ }).waitFor()],
  collaboration: ["#/signals/20260101_000000_abcdef01", (p) => p.getByText("Warns").first().waitFor()],
  workers: ["#/workers", (p) => p.getByRole("heading", { name: "box-aa19" }).waitFor()],
  async "workers-end"(p) {
    await p.getByRole("heading", { name: "box-aa19" }).evaluate((e) => e.closest(".item").scrollIntoView({ block: "end" }));
  },
  async "start-sandbox"(p) {
    await p.getByRole("button", { name: "Start a sandbox" }).click();
    await p.getByRole("dialog", { name: "Start a sandbox" }).waitFor();
  },
  async kill(p) {
    await p.getByRole("button", { name: "Kill…" }).first().click();
    await p.getByRole("dialog", { name: "Kill this sandbox?" }).waitFor();
  },
};

// Elsewhere in what another one holds to the rules: for the eye alone.
const forTheEye = ["plug-middle", "plug-end", "workers-end"];

// What opens in a view, or is a view with less in it: at the ends of the widths.
const atTheEnds = ["tool", "gone", "new-session", "watches-rest", "filter", "notice", "inbox-found", "event", "start-sandbox", "kill"];

/** What is to be read lies within the window. */
export async function inSight(page, locator, what) {
  await until(`${what} is in sight`, async () => {
    const box = await locator.boundingBox();
    return box && box.y >= 0 && box.y + box.height <= page.viewportSize().height;
  });
}

export async function every(_browser, ask) {
  await fill(ask);
  const only = (process.env.OSSICLE_SCENES ?? "").split(",").filter(Boolean);
  for (const [size, options] of Object.entries({ 360: phone, 768: tablet, 1440: desktop })) {
    const page = await open(options, "", undefined, async (p) => {
      await enrich(p);
      // The log of another epoch: the daemon says that it tells of its own from the beginning.
      await p.route("**/v1/events*", (r) => r.continue({ headers: { ...r.request().headers(), "last-event-id": "another-1" } }), { times: 1 });
    });
    for (const [name, scene] of Object.entries(scenes)) {
      if (only.length && !only.includes(name)) continue;
      const look = forTheEye.includes(name);
      if ((look || (size === "768" && atTheEnds.includes(name))) && !process.env.OSSICLE_PICTURES) continue;
      if (typeof scene === "function") await scene(page);
      else {
        await go(page, scene[0]);
        await scene[1](page);
      }
      if (name !== "working") await page.locator("main .view .spinner, main .chat > .note .spinner").first().waitFor({ state: "detached" });
      await fits(page, `${name} at ${size} px`);
      for (const scheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme: scheme });
        // Of what axe looks at, contrast alone depends on the colours.
        if (!look) await accessible(page, `${name} at ${size} px, ${scheme}`, ...(scheme === "light" ? [] : ["color-contrast"]));
        await picture(page, `${name}-${size}-${scheme}`);
      }
      await page.emulateMedia({ colorScheme: "light" });
      await page.keyboard.press("Escape");
      await page.locator(".drawer, .dialog, .plug-popover").first().waitFor({ state: "detached" });
    }
    await close(page);
  }
  await api("POST", "/v1/sessions/working/cancel", {});
  for (const id of ["shop-orders", "working", "asking", "shell", "a-session-with-a-name-that-is-too-long-for-a-phone"]) await api("DELETE", "/v1/sessions/" + id);
  for (const name of ["notes", "only-new"]) await api("DELETE", "/v1/sessions/two/watches/" + name);
}
