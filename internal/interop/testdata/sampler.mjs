// A client on the official TypeScript SDK that takes sampling requests, as somebody
// else would write it; it prints one JSON line for each thing it learns. Usage:
//   sampler.mjs MODE COMMAND [ARG...]
// MODE is what it does with a request: answer (it reads, tries to delegate back,
// acknowledges), refuse, hang, flood (it answers with megabytes), or none (it does
// not advertise sampling). Lines of standard input are tool calls.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [mode, command, ...args] = process.argv.slice(2);
const say = (o) => console.log(JSON.stringify(o));
const client = new Client({ name: 'sampler', version: '1.0.0' }, { capabilities: mode === 'none' ? {} : { sampling: {} } });
const call = async (name, args) => {
  const r = await client.callTool({ name, arguments: args });
  return { text: r.content[0]?.text ?? '', error: r.isError ?? false };
};
const answer = (text) => ({ role: 'assistant', model: 'scripted', stopReason: 'endTurn', content: { type: 'text', text } });
const modes = {
  async answer() {
    const read = JSON.parse((await call('read_signals', {})).text);
    for (const s of read.signals) {
      say({ delegated: await call('signal', { to: s.sender, content: 'no, you', type: 'delegate' }) });
      say({ acked: await call('signal', { to: s.sender, content: 'done', type: 'ack', reply_to: s.id }) });
    }
    say({ marked: await call('ack_signals', { ids: read.signals.map((s) => s.id) }) });
    return answer('done');
  },
  async refuse() { throw Object.assign(new Error('User rejected sampling request'), { code: -1 }); },
  hang: () => new Promise(() => {}),
  async flood() {
    await Promise.all(Array.from({ length: 50 }, () => call('list_agents', {})));
    return answer('x'.repeat(15 << 20));
  },
};
if (mode !== 'none') {
  client.setRequestHandler('sampling/createMessage', async (request) => {
    say({ sampled: request.params });
    const r = await modes[mode]();
    say({ answered: mode });
    return r;
  });
}
client.setNotificationHandler('notifications/resources/updated', (n) => say({ updated: n.params }));
await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));
const { resources } = await client.listResources();
for (const r of resources.filter((r) => r.uri.endsWith('/signals'))) await client.subscribeResource({ uri: r.uri });
say({ ready: resources.map((r) => r.uri) });
process.stdin.on('data', async (d) => {
  for (const line of String(d).split('\n').filter(Boolean)) {
    const { tool, args } = JSON.parse(line);
    say({ called: tool, ...(await call(tool, args)) });
  }
});
process.stdin.on('end', () => process.exit(0));
