// An agent over stdio (Agent Client Protocol) that does what the page has to show and
// the mock agent does not: it thinks, plans, fails with a tool, and works until it is
// cancelled.
//   SHOW   a thought, a plan, tools that come well and badly off, and an answer
//   WORK   the same half done, until the turn is cancelled
//   ASK    asks for permission
import { createInterface } from "node:readline";

const say = (m) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\n");
const sessionId = "shown";
const update = (sessionUpdate, more) => say({ method: "session/update", params: { sessionId, update: { sessionUpdate, ...more } } });
const text = (t) => ({ content: { type: "text", text: t } });

let turn = null; // the id of the prompt under way
let calls = 0;

function tool(title, kind, rawInput, status, rawOutput) {
  const toolCallId = "call_" + ++calls;
  update("tool_call", { toolCallId, title, kind, rawInput, status: "pending" });
  if (status !== "pending") update("tool_call_update", { toolCallId, status, ...(rawOutput === undefined ? {} : { rawOutput }) });
}

function end(stopReason) {
  say({ id: turn, result: { stopReason } });
  turn = null;
}

const plan = (...done) => update("plan", { entries: ["Read the migrations", "Change the schema of the table orders", "Run the tests"].map((content, i) => ({ content, priority: "medium", status: done[i] ?? "pending" })) });

const answer = `The column **customer_id** was missing an index. I added one:

\`\`\`sql
CREATE INDEX orders_by_customer ON orders (customer_id);
\`\`\`

The tests of \`orders/\` pass; one of \`billing/\` still fails, as it did before. What was looked at: https://example.invalid/a/rather/long/address/which/does/not/break/by/itself/anywhere and <img src=x onerror=alert(1)>.`;

const does = {
  SHOW() {
    update("agent_thought_chunk", text("The slow query reads the whole table, so an index is missing, or it is not used. The migrations will say which."));
    plan("in_progress");
    tool("Read migrations/0007_orders.sql", "read", { path: "migrations/0007_orders.sql" }, "completed", { lines: 42, text: "CREATE TABLE orders (…);" });
    tool("Run the tests of billing, with the race detector and a very long name of a package that does not fit into one line of a phone", "execute", { command: "go test -race ./billing/..." }, "failed", { exit_code: 1, output: "--- FAIL: TestInvoice (0.03s)\n    invoice_test.go:88: total is 12, want 13" });
    plan("completed", "completed", "in_progress");
    update("agent_message_chunk", text(answer));
    end("end_turn");
  },
  WORK() {
    update("agent_thought_chunk", text("Now the tests."));
    plan("completed", "in_progress");
    tool("Change migrations/0008_index.sql", "edit", { path: "migrations/0008_index.sql" }, "completed", {});
    update("agent_message_chunk", text("The index is there. Now I run the tests, which takes a while, and "));
    tool("go test ./...", "execute", { command: "go test ./..." }, "in_progress");
  },
  ASK() {
    const toolCallId = "call_" + ++calls;
    say({ id: "ask-" + calls, method: "session/request_permission", params: { sessionId, toolCall: { toolCallId, title: "Drop the table orders_old", kind: "delete", rawInput: { sql: "DROP TABLE orders_old", database: "shop" } }, options: [{ optionId: "a", name: "Always", kind: "allow_always" }, { optionId: "n", name: "No", kind: "reject_once" }, { optionId: "y", name: "Yes", kind: "allow_once" }] } });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line);
  switch (m.method) {
    case "initialize":
      say({ id: m.id, result: { protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "shown", title: "Shown", version: "1.2.3" } } });
      break;
    case "session/new":
      say({ id: m.id, result: { sessionId } });
      break;
    case "session/prompt": {
      turn = m.id;
      const word = m.params.prompt.map((p) => p.text ?? "").join(" ").match(/\b(SHOW|WORK|ASK)\b/)?.[0];
      if (word) does[word]();
      else end("end_turn");
      break;
    }
    case "session/cancel":
      if (turn !== null) end("cancelled");
      break;
    default:
      if (m.method && m.id !== undefined) say({ id: m.id, error: { code: -32601, message: "Method not found" } });
      else if (String(m.id).startsWith("ask-") && turn !== null) end(m.result?.outcome?.outcome === "selected" ? "end_turn" : "cancelled");
  }
}
