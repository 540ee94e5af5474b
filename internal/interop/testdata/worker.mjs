// A worker of the tool channel as somebody else would write it: the official
// TypeScript SDK for MCP, the package ws, and what the contract says. It speaks
// the first minor of the channel and knows nothing of ossicle. Arguments: how
// often to drop its connection by itself. Exits as the contract says.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import WebSocket from 'ws';
import { McpServer, fromJsonSchema } from '@modelcontextprotocol/server';

const sessionId = process.env.SESSION_ID;
const token = () => readFileSync(process.env.WORKER_TOKEN_FILE, 'utf8').trim();
const channelVersion = '1.0.0';
const instanceId = randomUUID();
const started = Date.now();
let attempt = 0;
let active = 0;
let lastCall = Date.now();
let drops = Number(process.argv[2] ?? 0);
let calls = 0; // state of the process, which outlives connections

// What a close code means: try again, or an exit code.
const exits = { 4001: 78, 4002: 77, 4003: 78, 4004: 75, 4005: 0, 4006: 78 };

function build() {
  const server = new McpServer({ name: 'agentfy-worker', version: 'ts-worker:1' }, { capabilities: { tools: { listChanged: true }, logging: {} } });
  const text = fromJsonSchema({ type: 'object', properties: { text: { type: 'string' }, sleep: { type: 'number' } } });
  server.registerTool('exec', { description: 'Say it again', inputSchema: text }, async ({ text, sleep }) => {
    await new Promise((resolve) => setTimeout(resolve, (sleep ?? 0) * 1000));
    return { content: [{ type: 'text', text: `${text} (call ${++calls} of process ${process.pid})` }] };
  });
  server.registerTool('file', { description: 'Fails', inputSchema: text }, async () => { throw new Error('no such file'); });
  return server;
}

function dial() {
  const ws = new WebSocket(process.env.CONTROL_URL, 'agentfy.worker.v1', { headers: { Authorization: `Bearer ${token()}` } });
  let initializeId, beats, effective = channelVersion, nextId = 0;
  const write = (message) => ws.readyState === WebSocket.OPEN && ws.send(JSON.stringify(message));
  const transport = {
    async start() {},
    async close() { ws.close(1001); },
    async send(message) {
      if (initializeId !== undefined && message.id === initializeId && message.result) {
        initializeId = undefined;
        message = { ...message, result: { ...message.result, _meta: { agentfy: { sessionId, channelVersion, instanceId, attempt } } } };
      }
      if ((message.result || message.error) && transport.calls.delete(message.id)) {
        active--;
        lastCall = Date.now();
      }
      write(message);
    },
    calls: new Set(),
  };
  const beat = () => write({
    jsonrpc: '2.0', id: `beat-${++nextId}`, method: 'agentfy/heartbeat',
    params: {
      sessionId, idleSeconds: active ? 0 : Math.floor((Date.now() - lastCall) / 1000), execSeconds: Math.floor((Date.now() - started) / 1000),
      activeToolCalls: active, workspaceBytes: 0, channelVersion: effective,
    },
  });
  ws.on('message', (data) => {
    const m = JSON.parse(data.toString());
    if (m.method === 'initialize') {
      initializeId = m.id;
      if (JSON.stringify(m.params.capabilities) !== '{}') process.exit(78);
      transport.onmessage(m);
    } else if (m.method === 'notifications/initialized') {
      transport.onmessage(m);
      write({ jsonrpc: '2.0', method: 'notifications/agentfy/ready', params: { sessionId, tools: ['exec', 'file'], workspace: '/workspace', bootMillis: Date.now() - started } });
    } else if (m.method === 'agentfy/release') {
      write({ jsonrpc: '2.0', id: m.id, result: { accepted: true, outputsFlushed: true, outputs: [{ type: 'resource_link', uri: 'store://art_ts' }] } });
      ws.close(4005, 'released');
    } else if (typeof m.id === 'string' && m.id.startsWith('beat-') && !m.method) {
      // the host lives
    } else {
      if (m.method === 'tools/list' && !beats) { beat(); beats = setInterval(beat, 500); }
      if (m.method === 'tools/call') { active++; transport.calls.add(m.id); }
      transport.onmessage(m);
      if (m.method === 'tools/call' && drops-- > 0) setTimeout(() => ws.terminate(), 50);
    }
  });
  ws.on('open', () => build().connect(transport));
  ws.on('unexpected-response', (_, res) => process.exit({ 401: 77, 403: 77, 426: 78 }[res.statusCode] ?? 75));
  ws.on('error', () => {});
  ws.on('close', (code) => {
    clearInterval(beats);
    transport.onclose?.();
    active = 0;
    const exit = exits[code];
    console.error(`closed with ${code}`);
    if (exit !== undefined) process.exit(exit);
    if (code === 4009) return;
    attempt++;
    setTimeout(dial, 200);
  });
}

dial();
