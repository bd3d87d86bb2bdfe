// A gateway in one handler: who asks, may it run, run it, what did it cost. It serves chat completions on loopback, and asks
// itself what a client would ask.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { Gate, InputError, Outcome, Policy, Refused, Request } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

const policy = Policy.fromFile(fileURLToPath(new URL('policy.yaml', import.meta.url)))
const gate = new Gate(policy, { clock: new ManualClock('2026-03-02T12:00:00Z') })

/** In a gateway of one's own, a call to the provider. */
async function upstream(body) {
  if (body.messages[0].content === 'fail') {
    return [500, { error: { message: 'out of memory', type: 'server_error' } }]
  }
  const usage = { prompt_tokens: 12, completion_tokens: 31, total_tokens: 43 }
  return [200, { choices: [{ message: { role: 'assistant', content: 'Rhine, Nile, Amazon.' } }], usage }]
}

async function chat(asked, text, signal) {
  const who = gate.authenticate((asked.headers.authorization ?? '').replace(/^Bearer /, ''))
  const request = Request.fromBody('openai_chat', text)
  // Waits where the policy says so; here it says no at once.
  const lease = await gate.acquire(who, request, { signal })
  lease.sent()
  const [status, answer] = await upstream({ ...JSON.parse(text), max_tokens: lease.maxOutputTokens })
  lease.finish(Outcome.ofAnswer(status, answer))
  return { status, headers: gate.headers(who), body: answer }
}

/** What went wrong, in the manner of OpenAI's API. */
function refuse(error) {
  if (error instanceof Refused) return error.refusal.response('openai')
  if (!(error instanceof InputError)) throw error
  const body = { error: { message: error.message, type: 'invalid_request_error', code: 'request_invalid' } }
  return { status: 400, headers: {}, body }
}

const server = createServer(async (asked, response) => {
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  const { status, headers, body } = await chat(asked, String(await buffer(asked)), gone.signal).catch(refuse)
  response.writeHead(status, { ...headers, 'content-type': 'application/json' }).end(JSON.stringify(body))
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')

/** Asks and prints the answer's status, what it says about limits, and its text or its error. */
async function ask(what, key, body) {
  const url = `http://127.0.0.1:${server.address().port}/v1/chat/completions`
  const answer = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${key}` }, body })
  console.log(`${what}: ${answer.status}`)
  for (const name of ['retry-after', 'x-ratelimit-remaining-requests']) {
    if (answer.headers.has(name)) console.log(`  ${name}: ${answer.headers.get(name)}`)
  }
  const { choices, error } = await answer.json()
  console.log(`  ${choices?.[0].message.content ?? error.code ?? error.message}`)
}

const rivers = '{"model":"small","messages":[{"role":"user","content":"Name three rivers."}]}'
const failing = '{"model":"small","messages":[{"role":"user","content":"fail"}]}'
const key = 'demo-acme-key'
await ask('a request', key, rivers)
await ask('a wrong key', 'demo-other-key', rivers)
await ask('half a body', key, rivers.slice(0, 40))
await ask('no messages', key, '{"model":"small"}')
await ask('an upstream that fails', key, failing)
await ask('a request', key, rivers)
await ask('a request', key, rivers)
await ask('a fifth in a minute', key, rivers)
server.close()
server.closeAllConnections()
for (const { limit, used } of gate.balances(gate.authenticate(key))) console.log(`${limit}: ${used} used`)
