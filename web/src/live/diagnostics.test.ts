import { expect, test } from "vitest";
import { diagnostics, text } from "./diagnostics";
import type { Report } from "./report";

const canary = "CANARY-7f3a9b2c4d5e6f70";
const at = "2026-11-30T06:00:00.5Z";

// a canary in every place that is not named in the contract, and in those
// where a text of somebody else could carry one.
const report = {
  schema_version: 1,
  current_attachment_attempt_id: "att_1",
  env: { TOKEN: canary },
  attempts: [
    {
      session_id: "s1", execution_id: "exe_1", attachment_attempt_id: "att_1", started_at: at, updated_at: at, prompt: canary, acp_session_id: canary + " ",
      session_error: { occurred_at: at, reason_code: "session_failed", summary: `refused: Authorization: Bearer ${canary}`, frame: canary },
      evidence: [{ kind: "x", summary: canary, headers: { Authorization: canary } }],
      servers: [
        {
          name: "board", source: "profile", transport: "http", target: `https://user:${canary}@mcp.example:8443/${canary}?key=${canary}`, status: "failed",
          reason_code: canary, summary: `GET https://mcp.example/${canary}?k=${canary} api_key=${canary} sk-${canary}${canary}`,
          headers: { Authorization: canary }, args: [canary], env: { K: canary }, last_tool: canary, connection_id: canary,
          tool_catalogue: { tools: [{ name: canary, description: canary, input_schema: { x: canary } }] },
          steps: { server_delivered: { at, summary: canary, target: canary }, [canary]: { at } },
          endpoint_test: { tested_at: at, succeeded: false, reason_code: "timeout", summary: `token ${canary}`, body: canary },
          client: { name: "codex", version: "1", era: canary },
        },
        { name: "local", transport: "stdio", target: `/opt/secret/${"run"} --key ${canary}`, status: "active", tool_count: 3, tools_listed_at: at },
      ],
    },
  ],
} as unknown as Report;

test("copied diagnostics hold what the report says, and no secret", () => {
  const out = diagnostics(report);
  expect(out).not.toContain(canary);
  expect(out).not.toContain("7f3a9b2c");
  const d = JSON.parse(out) as { current: { session_id: string; servers: Record<string, unknown>[] } };
  expect(d.current.session_id).toBe("s1");
  expect(d.current.servers[0]).toMatchObject({ name: "board", target: "https://mcp.example:8443", status: "failed", shown_as: "Failed", steps: { server_delivered: at } });
  expect(d.current.servers[1]).toMatchObject({ name: "local", target: "run", tool_count: 3, shown_as: "Active" });
});

test("texts lose what may be a secret, and control characters", () => {
  expect(text("dial tcp 127.0.0.1:80: connection refused")).toBe("dial tcp 127.0.0.1:80: connection refused");
  expect(text("password=hunter2 and more")).toBe("password=(left out) and more");
  expect(text("a\u0000\u202eb\nc")).toBe("a b c");
  expect(text("x".repeat(400))?.length).toBe(257);
});

test("a report without an attempt is told as such", () => {
  expect(JSON.parse(diagnostics({ schema_version: 1, attempts: null }))).toMatchObject({ current: null, attempts_kept: 0 });
});
