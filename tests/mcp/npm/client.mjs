// Uses the tools of a server as its user, with npm's official client; prints what it saw as one object of JSON.
// node client.mjs URL, or node client.mjs COMMAND ARGUMENT...
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema, ProgressNotificationSchema } from '@modelcontextprotocol/sdk/types.js'

const [target, ...args] = process.argv.slice(2)
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, env: process.env })

const client = new Client({ name: 'test', version: '1' }, { capabilities: { elicitation: { form: {} } } })
const seen = { asked: [], progress: [] }
let answer = { action: 'accept', content: { approve: true } }
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  seen.asked.push(request.params.message)
  return answer
})

// Its own handler forgets a call when the result has come, so it loses progress that comes in the same piece of output.
client.setNotificationHandler(ProgressNotificationSchema, ({ params }) => { seen.progress.push(params.message) })

const call = async (name, parameters, options) => {
  const result = await client.callTool({ name, arguments: parameters }, undefined, options)
  return [result.isError ?? false, result.content[0].text]
}

await client.connect(transport)
const { tools } = await client.listTools()
seen.tools = tools.map((tool) => [tool.name, tool.description, tool.inputSchema.required ?? []])
seen.added = await call('add', { a: 40, b: 2 })
seen.wrong = await call('add', { a: 'x' })
seen.bad = await call('bad', {})
seen.counted = await call('count', { to: 3 }, { onprogress: () => {} })
seen.approved = await call('desk', { task: 'B-1' })
answer = { action: 'accept', content: { approve: false, reason: 'not today' } }
seen.denied = await call('refund', { order: 'B-2' })
answer = { action: 'decline' }
seen.declined = await call('refund', { order: 'B-3' })

const gone = new AbortController()
const hanging = call('hang', {}, { signal: gone.signal })
setTimeout(() => gone.abort('no longer wanted'), 500)
seen.cancelled = await hanging.then(() => 'answered', (error) => String(error.message ?? error))
seen.after = await call('add', { a: 1 })
await client.close()
console.log(JSON.stringify(seen))
