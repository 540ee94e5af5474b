// How much the page works: 10,000 events a minute in the feed, and a transcript of
// 5,000 entries that is loaded, scrolled through, and goes on. Scripting time is the
// browser's own count (Performance.getMetrics, ScriptDuration). Prints JSON.
import { api, desktop, go, launch, open, until } from "./browser.mjs";

const perMinute = 10_000;
const seconds = Number(process.env.OSSICLE_BENCH_SECONDS ?? 60);
const entries = 5_000;

async function meter(page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable");
  await page.evaluate(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => globalThis.longTasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
  });
  const read = async () => Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));
  return async (what, during) => {
    await page.evaluate(() => (globalThis.longTasks = []));
    const before = await read();
    const start = performance.now();
    const more = await during();
    const wall = (performance.now() - start) / 1000;
    const after = await read();
    const of = (name) => after[name] - before[name];
    const tasks = await page.evaluate(() => globalThis.longTasks);
    console.log(JSON.stringify({
      what, wall_s: round(wall), script_s: round(of("ScriptDuration")), layout_s: round(of("LayoutDuration")), style_s: round(of("RecalcStyleDuration")), task_s: round(of("TaskDuration")),
      script_share: round(of("ScriptDuration") / wall), longest_task_ms: Math.round(Math.max(0, ...tasks)), heap_mb: Math.round(after.JSHeapUsedSize / 1e6), nodes: after.Nodes, ...more,
    }));
  };
}

const round = (n) => Math.round(n * 1000) / 1000;

async function feed() {
  const page = await open(desktop, "#/feed");
  await page.locator(".head").getByText("Live", { exact: true }).waitFor();
  const measure = await meter(page);
  await measure(`${perMinute} events a minute in the feed`, async () => {
    let sent = 0;
    const start = Date.now();
    while (Date.now() - start < seconds * 1000) {
      const due = Math.floor(((Date.now() - start) / 60_000) * perMinute);
      const batch = Array.from({ length: Math.min(due - sent, 500) }, (_, i) => ({ type: "tick", key: "k" + ((sent + i) % 50), data: { n: sent + i, text: "a line of some length, as events have" } }));
      if (batch.length) await api("POST", "/v1/topics/load/events", batch);
      sent += batch.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const last = `"n":${sent - 1},`;
    await page.locator(".event-row").filter({ hasText: last }).first().waitFor();
    const click = performance.now();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused", { exact: true }).waitFor();
    return { events: sent, pause_ms: Math.round(performance.now() - click), rows_in_page: await page.locator(".event-row").count() };
  });
  await page.context().close();
}

async function transcript() {
  await api("POST", "/v1/sessions", { id: "long", profile: "mock" });
  let have = 0;
  for (let n = 0; have < entries; n++) {
    await api("POST", "/v1/sessions/long/prompt", { text: `SAY answer ${n}, which is about as long as a short answer of an agent is`, wait: true });
    if (n % 50 === 0) have = (await api("GET", "/v1/sessions/long/transcript?limit=1&last=true")).seq;
  }
  const page = await open(desktop);
  const measure = await meter(page);
  const area = page.getByRole("region", { name: "Transcript" });
  await measure("opening a session", async () => {
    await go(page, "#/sessions/long");
    await area.getByText(/answer \d+/).first().waitFor();
  });
  await measure(`loading ${entries} entries`, async () => {
    const older = area.getByRole("button", { name: /Load what was before/ });
    await until("all are loaded", async () => {
      await area.evaluate((e) => (e.scrollTop = 0));
      if ((await older.count()) === 0) return true;
      await older.click({ timeout: 1000 }).catch(() => undefined);
      await page.waitForTimeout(150);
      return false;
    });
    return { rows_in_page: await area.getByRole("listitem").count() };
  });
  await measure("scrolling through them", async () => {
    await area.evaluate(async (e) => {
      for (let at = 0; at < e.scrollHeight; at += 2000) {
        e.scrollTop = at;
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
      e.scrollTop = e.scrollHeight;
    });
  });
  await measure("20 turns more", async () => {
    for (let n = 0; n < 20; n++) await api("POST", "/v1/sessions/long/prompt", { text: `SAY more ${n}`, wait: true });
    await area.getByText("more 19", { exact: true }).first().waitFor();
  });
  await measure("typing 100 characters", async () => {
    await page.getByLabel("Message to the agent").pressSequentially("x".repeat(100));
  });
  await page.context().close();
}

const browser = await launch();
await feed();
await transcript();
await browser.close();
