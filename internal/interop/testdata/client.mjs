// A client on the official TypeScript SDK that listens to one resource and
// prints one JSON line for each thing it learns. Usage:
//   client.mjs URI http URL [HEADER-VALUE]   |   client.mjs URI stdio COMMAND [ARG...]
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [uri, kind, target, ...rest] = process.argv.slice(2);
const say = (o) => console.log(JSON.stringify(o));
const transport = kind === 'http'
  ? new StreamableHTTPClientTransport(new URL(target), rest[0] ? { requestInit: { headers: { Authorization: rest[0] } } } : {})
  : new StdioClientTransport({ command: target, args: rest });
const client = new Client({ name: 'somebody', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
client.setNotificationHandler('notifications/resources/updated', async (n) => {
  const read = await client.readResource({ uri: n.params.uri });
  say({ updated: n.params.uri, text: read.contents[0].text });
});
await client.connect(transport);
say({ version: client.getNegotiatedProtocolVersion?.() ?? null });
const subscription = await client.listen({ resourceSubscriptions: [uri] });
say({ honored: subscription.honoredFilter });
subscription.closed.then((why) => { say({ closed: why }); process.exit(0); });
process.stdin.on('data', async (d) => {
  for (const line of String(d).split('\n').filter(Boolean)) {
    const { tool, args } = JSON.parse(line);
    say({ called: (await client.callTool({ name: tool, arguments: args })).content[0]?.text ?? '' });
  }
});
process.stdin.on('end', () => process.exit(0));
