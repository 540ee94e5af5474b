// A server on the official TypeScript SDK, as somebody else would write it: a
// board of cards that pushes an update after each change. Run with "stdio", or
// with "http" to listen on a free port and print it.
import { createServer } from 'node:http';
import { McpServer, createMcpHandler, fromJsonSchema } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';

const uri = 'board://cards';
const cards = new Map([['c1', { id: 'c1', title: 'first', column: 'todo' }]]);
let announce = () => {};

function build() {
  const server = new McpServer({ name: 'board', version: '1.0.0' }, { capabilities: { resources: { subscribe: true }, tools: {} } });
  server.registerResource('cards', uri, { mimeType: 'application/json', description: 'The cards of the board.' },
    async () => ({ contents: [{ uri, mimeType: 'application/json', text: JSON.stringify([...cards.values()]) }] }));
  const card = fromJsonSchema({ type: 'object', properties: { id: { type: 'string' }, title: { type: 'string' }, column: { type: 'string' } }, required: ['id'] });
  server.registerTool('put_card', { description: 'Add or change a card', inputSchema: card }, async (args) => {
    cards.set(args.id, { ...cards.get(args.id), ...args });
    announce(server);
    return { content: [{ type: 'text', text: 'ok' }] };
  });
  server.registerTool('get_card', { description: 'Read a card', inputSchema: card, annotations: { readOnlyHint: true } },
    async (args) => ({ content: [{ type: 'text', text: JSON.stringify(cards.get(args.id) ?? null) }] }));
  return server;
}

if (process.argv[2] === 'http') {
  const handler = createMcpHandler(build, { keepAliveMs: 1000 });
  announce = () => handler.notify.resourceUpdated(uri);
  const http = createServer(toNodeHandler(handler)).listen(0, '127.0.0.1', () => console.log(http.address().port));
  process.stdin.on('end', () => process.exit(0)).resume();
  // "end" on standard input line by line: close every listen politely.
  process.stdin.on('data', (d) => { if (String(d).includes('close')) handler.close(); });
} else {
  announce = (server) => server.server.sendResourceUpdated({ uri });
  serveStdio(build);
}
