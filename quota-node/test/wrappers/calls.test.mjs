// Calls of upstreams with the gate before them: `fetch` itself, and the clients of OpenAI and Anthropic over it.

import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI, { AzureOpenAI } from 'openai'
import { quotaFetch } from 'quota-node/fetch'
import * as anthropic from 'quota-node/anthropic'
import * as openai from 'quota-node/openai'
import { Books, closed, learn, newGate, principal, until } from './books.mjs'
import { INPUT, OUTPUT, Upstream } from './upstream.mjs'

const MESSAGES = [{ role: 'user', content: 'Say a word.' }]
const BODY = { model: 'm', messages: MESSAGES }
const GEMINI = { contents: [{ role: 'user', parts: [{ text: 'Say a word.' }] }] }

const rejections = []
process.on('unhandledRejection', (reason) => rejections.push(reason))

let upstream
let gate
let books

before(async () => (upstream = await Upstream.start()))
after(() => upstream.stop())
beforeEach(() => {
  upstream.reset()
  rejections.length = 0
  gate = newGate()
  books = new Books(gate)
})

/** A test that ends with the books even and nothing thrown that nobody saw. */
const check = (title, run) =>
  test(title, async () => {
    await run()
    books.even()
    assert.deepEqual(rejections, [])
  })

const gated = (tenant, options) => quotaFetch(globalThis.fetch, { gate, who: principal(tenant), ...options })
const post = (fetch, path = '/v1/chat/completions', body = BODY, more) =>
  fetch(upstream.url + path, { method: 'POST', body: JSON.stringify(body), ...more })

const clientOf = (Class, base, wrap, tenant, options) => {
  const client = new Class({ apiKey: 'k', baseURL: upstream.url + base, maxRetries: 0, ...options })
  return wrap(client, { gate, who: principal(tenant) })
}
const ofOpenAI = (tenant, options) => clientOf(OpenAI, '/v1', openai.wrap, tenant, options)
const ofAnthropic = (tenant, options) => clientOf(Anthropic, '', anthropic.wrap, tenant, options)

// ---------------------------------------------------------------------------------------------------------------- fetch

for (const [path, body] of [
  ['/v1/chat/completions', BODY],
  ['/openai/deployments/m/chat/completions?api-version=1', BODY],
  ['/v1/completions', { model: 'm', prompt: 'x' }],
  ['/v1/responses', { model: 'm', input: 'x' }],
  ['/v1/messages', { ...BODY, max_tokens: 100 }],
  ['/v1beta/models/m:generateContent', GEMINI],
  ['/v1beta/models/m:streamGenerateContent?alt=sse', GEMINI],
]) {
  for (const stream of path.includes('models') ? [undefined] : [false, true]) {
    check(`${path} is settled as it was reported, stream ${stream}`, async () => {
      const answer = await post(gated(), path, { ...body, stream })
      assert.deepEqual([answer.status, answer.url, books.inFlight], [200, upstream.url + path, 1])
      const text = await answer.text()
      books.settled(1)
      assert.match(text, /word/)
      assert.equal(/"prompt_tokens"/.test(text), !stream && /completions/.test(path))
    })
  }
}

check('every way to hand a body to fetch is the same', async () => {
  const fetch = gated()
  const text = JSON.stringify(BODY)
  const url = `${upstream.url}/v1/chat/completions`
  const headers = { 'content-type': 'application/json', 'content-length': '3' }
  const ways = [
    () => fetch(url, { method: 'post', body: Buffer.from(text) }),
    () => fetch(new URL(url), { method: 'POST', body: new Blob([text]), headers: { 'x-mine': '1' } }),
    () => fetch(url, { method: 'POST', body: new Blob([text]).stream(), duplex: 'half' }),
    () => fetch(new Request(url, { method: 'POST', body: text, headers: { 'x-mine': '1' } })),
    () => fetch(new Request(url, { method: 'POST' }), { body: text, headers }),
  ]
  for (const way of ways) assert.equal((await (await way()).json()).usage.prompt_tokens, INPUT)
  books.settled(ways.length)
  assert.deepEqual(new Set(upstream.calls.map((call) => call.body.max_completion_tokens)), new Set([400]))
  assert.deepEqual(upstream.calls.map((call) => call.headers['x-mine']).filter(Boolean), ['1', '1'])
})

check('what spends nothing passes, what cannot be metered does not', async () => {
  const fetch = gated('acme', { unmetered: ['/v1/files', '/things/{id}/done'] })
  for (const path of ['/v1/files', '/v1/things/x/done', '/v1/moderations', '/v1/messages/count_tokens']) {
    assert.equal((await post(fetch, path)).status, 404, path)
  }
  assert.equal((await fetch(`${upstream.url}/v1/chat/completions`)).status, 200)
  const came = upstream.calls.length
  for (const path of ['/v1/images/generations', '/v1/things/x/y/done', '/v1/threads/t/messages']) {
    const answer = await post(fetch, path)
    assert.deepEqual([answer.status, (await answer.json()).error.code], [400, 'call_not_metered'], path)
  }
  assert.equal(upstream.calls.length, came)
  books.settled(0)
})

check('a refusal is an answer in the provider’s manner', async () => {
  const fetch = gated('slow')
  await (await post(fetch)).text()
  const answer = await post(fetch)
  assert.deepEqual([answer.status, answer.headers.get('content-type')], [429, 'application/json'])
  assert.ok(Number(answer.headers.get('retry-after')) > 50)
  assert.equal((await answer.json()).error.reason, 'request_rate_exceeded')
  const other = await post(fetch, '/v1/messages', { ...BODY, max_tokens: 3 })
  assert.equal((await other.json()).error.type, 'rate_limit_error')
  for (const body of ['x', '[]', '{}', '']) {
    const answer = await fetch(`${upstream.url}/v1/chat/completions`, { method: 'POST', body })
    assert.deepEqual([answer.status, (await answer.json()).error.code], [400, 'request_invalid'], body)
  }
  assert.equal(upstream.calls.length, 1)
})

check('what can’t be rewritten is not sent, and holds nothing', async () => {
  const answer = await post(gated(), undefined, { ...BODY, stream: true, stream_options: 3 })
  assert.deepEqual([answer.status, (await answer.json()).error.param], [400, 'stream_options'])
  assert.equal(upstream.calls.length, 0)
  books.settled(0)
})

check('a refusal ends an event that was passed on in part', async () => {
  learn(gate)
  const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'word '.repeat(900) } }] })}\n\n`
  const pieces = [event.slice(0, 10), event.slice(10)]
  const body = () => ReadableStream.from(pieces.map((piece) => Buffer.from(piece)))
  const headers = { 'content-type': 'text/event-stream' }
  const fetch = quotaFetch(async () => new Response(body(), { headers }), { gate, who: principal('short') })
  const asked = { ...BODY, stream: true, max_tokens: 390, stream_options: { include_usage: true } }
  const told = await (await post(fetch, undefined, asked)).text()
  assert.match(told, /^data: \{"ch\n\ndata: \{"error":/)
  assert.equal(gate.unresolved().length, 1)
})

check('the body is sent as it was agreed', async () => {
  const fetch = gated('soft')
  await (await post(fetch, undefined, { ...BODY, model: 'dear', max_tokens: 50, tools: [{ type: 'web_search' }] })).text()
  assert.deepEqual(upstream.calls[0].body, { ...BODY, max_tokens: 8 })
  const address = '/v1beta/models/dear:streamGenerateContent?alt=sse'
  await (await post(fetch, address, GEMINI)).text()
  assert.equal(upstream.calls[1].path, '/v1beta/models/m:streamGenerateContent')
  assert.deepEqual(books.unresolved, [])
})

check('the upstream is sent its own name of the model', async () => {
  await (await post(gated(), undefined, { ...BODY, model: 'alias' })).text()
  await (await post(gated(), '/v1beta/models/alias:generateContent', GEMINI)).text()
  assert.equal(upstream.calls[0].body.model, 'm')
  assert.equal(upstream.calls[1].path, '/v1beta/models/m:generateContent')
  books.settled(2)
})

check('Gemini’s routes are answered in Google’s manner', async () => {
  const [fetch, path] = [gated('slow'), '/v1beta/models/m:generateContent']
  await (await post(fetch, path, GEMINI)).text()
  const refused = await post(fetch, path, GEMINI)
  const { error } = await refused.json()
  assert.deepEqual([refused.status, error.code, error.status], [429, 429, 'RESOURCE_EXHAUSTED'])
  assert.equal(error.details[0].reason, 'REQUEST_RATE_EXCEEDED')
  const malformed = await post(fetch, path, { contents: 3 })
  const told = (await malformed.json()).error
  assert.deepEqual([malformed.status, told.code, told.status], [400, 400, 'INVALID_ARGUMENT'])
})

check('a stream is settled by its last event, though the upstream goes on', async () => {
  const usage = { prompt_tokens: INPUT, completion_tokens: OUTPUT, total_tokens: INPUT + OUTPUT }
  const events = [{ choices: [{ index: 0, delta: { content: 'word' } }] }, { choices: [], usage }]
  const text = [...events.map((event) => JSON.stringify(event)), '[DONE]'].map((data) => `data: ${data}\n\n`).join('')
  let pieces
  const start = (controller) => (pieces = controller)
  const answer = new Response(new ReadableStream({ start }), { headers: { 'content-type': 'text/event-stream' } })
  const fetch = quotaFetch(async () => answer, { gate, who: principal() })
  const reader = (await post(fetch, undefined, { ...BODY, stream: true })).body.getReader()
  const decoder = new TextDecoder()
  let told = ''
  pieces.enqueue(Buffer.from(text))
  while (!told.includes('[DONE]')) told += decoder.decode((await reader.read()).value)
  assert.ok(!told.includes('prompt_tokens'))
  books.settled(1)
  pieces.enqueue(Buffer.from(': more\n\n'))
  pieces.close()
  assert.equal(decoder.decode((await reader.read()).value), ': more\n\n')
  assert.ok((await reader.read()).done)
  books.settled(1)
})

check('a signal ends the wait, and nothing is held', async () => {
  books = new Books(gate, 'queue')
  const fetch = gated('queue')
  upstream.steps = [{ how: 'hang' }]
  const first = post(fetch)
  await until(() => upstream.calls.length === 1)
  const controller = new AbortController()
  const second = post(fetch, undefined, undefined, { signal: controller.signal })
  await until(() => books.waiting === 1)
  controller.abort(new Error('enough'))
  await assert.rejects(second, /enough/)
  assert.equal(books.waiting, 0)
  const never = post(fetch, undefined, undefined, { signal: AbortSignal.abort() })
  await assert.rejects(never, { name: 'AbortError' })
  upstream.go()
  await (await first).text()
  assert.deepEqual([books.used('rpd'), books.inFlight, books.unresolved, upstream.calls.length], [1, 0, [], 1])
})

check('a call that is aborted after it was sent is unresolved', async () => {
  upstream.steps = [{ how: 'hang' }, { how: 'hangMidway' }]
  const controller = new AbortController()
  const { signal } = controller
  const first = post(gated(), undefined, undefined, { signal })
  await until(() => upstream.calls.length === 1)
  const second = await post(gated(), undefined, { ...BODY, stream: true }, { signal })
  const reader = second.body.getReader()
  await reader.read()
  assert.equal(books.inFlight, 2)
  controller.abort()
  await assert.rejects(first, { name: 'AbortError' })
  await assert.rejects(async () => {
    while (!(await reader.read()).done);
  })
  assert.deepEqual([books.inFlight, books.unresolved], [0, ['dropped', 'no_usage']])
  assert.ok(gate.unresolved()[1].seen.outputTotal >= 1)
})

check('who cancels a stream leaves it unresolved, and the upstream is left', async () => {
  upstream.steps = [{ how: 'hangMidway' }]
  const answer = await post(gated(), undefined, { ...BODY, stream: true })
  const reader = answer.body.getReader()
  await reader.read()
  await reader.cancel('enough')
  assert.equal(books.inFlight, 0)
  assert.ok(gate.unresolved()[0].seen.outputTotal >= 1)
  await until(() => upstream.left === 1)
})

check('an answer that nobody reads is unresolved once it is lost', async () => {
  await post(gated())
  assert.equal(books.inFlight, 1)
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc')
  await until(() => {
    gc()
    return books.inFlight === 0
  })
  assert.deepEqual(books.unresolved, ['dropped'])
})

check('an upstream that is not there costs nothing', async () => {
  const call = gated()(`${await closed()}/chat/completions`, { method: 'POST', body: JSON.stringify(BODY) })
  await assert.rejects(call, TypeError)
  books.settled(0)
})

check('an upstream that breaks off is unresolved', async () => {
  upstream.steps = [{ how: 'break' }, { how: 'breakMidway' }]
  await assert.rejects(post(gated()), TypeError)
  assert.deepEqual(books.unresolved, ['upstream_failed'])
  const answer = await post(gated(), undefined, { ...BODY, stream: true })
  await assert.rejects(answer.text())
  assert.deepEqual([books.inFlight, books.unresolved.length], [0, 2])
})

for (const [status, charged] of [
  [400, 0],
  [429, 0],
  [500, 1],
  [503, 1],
]) {
  check(`an upstream that fails with ${status}, whether its error is read or not`, async () => {
    upstream.steps = [{ status }, { status }]
    await (await post(gated())).text()
    await (await post(gated())).body.cancel()
    assert.deepEqual([books.inFlight, books.used('rpd')], [0, 2 * charged])
    assert.deepEqual(books.unresolved, Array(2 * charged).fill('upstream_failed'))
  })
}

check('an answer that was compressed is read', async () => {
  upstream.steps = [{ gzip: true }, { gzip: true }]
  await (await post(gated())).json()
  assert.match(await (await post(gated(), undefined, { ...BODY, stream: true })).text(), /DONE/)
  books.settled(2)
})

check('an answer without usage is unresolved', async () => {
  upstream.steps = [{ usage: false }, { usage: false }]
  await (await post(gated())).json()
  await (await post(gated(), undefined, { ...BODY, stream: true })).text()
  assert.deepEqual([books.inFlight, books.unresolved], [0, ['no_usage', 'no_usage']])
})

check('who asks may be a function, and is a principal', async () => {
  await (await post(gated('acme', { who: async () => principal() }))).text()
  books.settled(1)
  await assert.rejects(post(gated('acme', { who: () => 'acme' })), /who: it gave no Principal/)
  books.settled(1)
  for (const options of [undefined, {}, { gate }, { gate, who: 'acme' }, { gate, who: principal(), unmetered: 'x' }]) {
    assert.throws(() => quotaFetch(fetch, options), TypeError)
  }
  assert.throws(() => quotaFetch(fetch, { gate, who: principal(), routes: { '/x': 'no' } }), /allowed: openai_chat/)
})

// -------------------------------------------------------------------------------------------------------------- clients

check('OpenAI: every way to call is metered', async () => {
  const client = ofOpenAI()
  assert.ok(client instanceof OpenAI)
  const made = await client.chat.completions.create(BODY)
  assert.equal(made.usage.completion_tokens, OUTPUT)
  await client.completions.create({ model: 'm', prompt: 'x' })
  await client.responses.create({ model: 'm', input: 'x' })
  await client.chat.completions.parse(BODY)
  const { data, response } = await client.chat.completions.create(BODY).withResponse()
  assert.deepEqual([data.usage.prompt_tokens, response.status], [INPUT, 200])
  const raw = await client.chat.completions.create(BODY).asResponse()
  assert.equal(books.inFlight, 1)
  assert.equal((await raw.json()).usage.prompt_tokens, INPUT)
  await client.withOptions({ timeout: 5000 }).chat.completions.create(BODY)
  await client.withOptions({ fetch: globalThis.fetch }).chat.completions.create(BODY)
  await client.post('/chat/completions', { body: BODY })
  books.settled(9)
  await client.embeddings.create({ model: 'm', input: 'x', encoding_format: 'float' })
  assert.deepEqual([books.used('rpd'), books.used('output_tpd')], [10, 9 * OUTPUT])
})

check('OpenAI: streams are the SDK’s own', async () => {
  const client = ofOpenAI()
  const asked = { ...BODY, stream: true }
  const words = async (stream) => {
    let text = ''
    for await (const chunk of stream) {
      assert.equal(chunk.usage, undefined)
      text += chunk.choices[0].delta.content ?? ''
    }
    return text
  }
  const want = 'word '.repeat(4)
  assert.equal(await words(await client.chat.completions.create(asked)), want)
  const [one, two] = (await client.chat.completions.create(asked)).tee()
  assert.deepEqual(await Promise.all([words(one), words(two)]), [want, want])
  const readable = (await client.chat.completions.create(asked)).toReadableStream()
  assert.match(await new Response(readable).text(), /word/)
  const helper = client.chat.completions.stream(BODY)
  assert.equal(await helper.finalContent(), want)
  const { data } = await client.chat.completions.create(asked).withResponse()
  assert.equal(await words(data), want)
  for await (const event of await client.responses.create({ model: 'm', input: 'x', stream: true })) assert.ok(event.type)
  await client.responses.stream({ model: 'm', input: 'x' }).finalResponse()
  books.settled(7)
})

check('OpenAI: who leaves a stream leaves it unresolved', async () => {
  const client = ofOpenAI()
  const asked = { ...BODY, stream: true }
  upstream.steps = [{ how: 'hangMidway' }, { how: 'hangMidway' }]
  for await (const chunk of await client.chat.completions.create(asked)) {
    assert.ok(chunk)
    break
  }
  const stream = await client.chat.completions.create(asked)
  for await (const chunk of stream) {
    assert.ok(chunk)
    stream.controller.abort()
  }
  await until(() => books.inFlight === 0)
  assert.equal(books.unresolved.length, 2)
  await until(() => upstream.left === 2)
})

check('OpenAI: a refusal is the SDK’s own error', async () => {
  const client = ofOpenAI('slow')
  await client.chat.completions.create(BODY)
  await assert.rejects(client.chat.completions.create({ ...BODY, stream: true }), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError)
    assert.equal(error.error.reason, 'request_rate_exceeded')
    return true
  })
  await assert.rejects(client.images.generate({ prompt: 'x' }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError)
    assert.equal(error.code, 'call_not_metered')
    return true
  })
  assert.equal(upstream.calls.length, 1)
})

check('OpenAI: each attempt has a lease, and what was not run is given back', async () => {
  const client = ofOpenAI('acme', { maxRetries: 2 })
  const headers = { 'retry-after-ms': '1' }
  upstream.steps = [{ status: 429, headers }, { status: 500, headers }]
  await client.chat.completions.create(BODY)
  assert.equal(upstream.calls.length, 3)
  // The second may have run.
  assert.deepEqual([books.inFlight, books.used('rpd'), books.unresolved], [0, 2, ['upstream_failed']])
  assert.equal(books.used('output_tpd'), 400 + OUTPUT)
})

check('OpenAI: a stream that outgrows its limit fails in the SDK’s manner', async () => {
  learn(gate)
  books = new Books(gate, 'short')
  upstream.steps = [{ words: 300, how: 'hangMidway' }]
  const stream = await ofOpenAI('short').chat.completions.create({ ...BODY, stream: true, max_tokens: 390 })
  await assert.rejects(async () => {
    for await (const chunk of stream) assert.ok(chunk)
  }, OpenAI.APIError)
  assert.equal(books.unresolved.length, 1)
  await until(() => upstream.left === 1)
})

check('OpenAI: what makes no copy of itself is made with the gate’s fetch', async () => {
  const fetch = gated()
  const client = new AzureOpenAI({ apiKey: 'k', endpoint: upstream.url, apiVersion: '1', maxRetries: 0, fetch })
  await client.chat.completions.create(BODY)
  assert.equal(upstream.calls[0].path, '/openai/deployments/m/chat/completions')
  books.settled(1)
})

check('OpenAI: what is no client, or wrapped, is refused', async () => {
  const options = { gate, who: principal() }
  assert.throws(() => openai.wrap(ofOpenAI(), options), /wrapped already/)
  assert.throws(() => openai.wrap({}, options), /client: a client of the SDK/)
  assert.throws(() => openai.wrap(new OpenAI({ apiKey: 'k' }), { gate }), /who: /)
})

check('Anthropic: every way to call is metered', async () => {
  const client = ofAnthropic()
  assert.ok(client instanceof Anthropic)
  const asked = { ...BODY, max_tokens: 100 }
  assert.equal((await client.messages.create(asked)).usage.output_tokens, OUTPUT)
  for await (const event of await client.messages.create({ ...asked, stream: true })) assert.ok(event.type)
  assert.equal((await client.messages.stream(asked).finalMessage()).usage.output_tokens, OUTPUT)
  assert.equal((await client.beta.messages.create(asked)).usage.output_tokens, OUTPUT)
  const { data } = await client.messages.create(asked).withResponse()
  assert.equal(data.usage.output_tokens, OUTPUT)
  await (await client.messages.create(asked).asResponse()).text()
  await client.withOptions({ timeout: 5000 }).messages.create(asked)
  books.settled(7)
  upstream.steps = [{ how: 'hangMidway' }]
  const stream = client.messages.stream(asked)
  await assert.rejects(async () => {
    for await (const event of stream) if (event.type === 'content_block_start') stream.abort()
  }, Anthropic.APIUserAbortError)
  await until(() => books.inFlight === 0)
  assert.equal(books.unresolved.length, 1)
})

check('Anthropic: a refusal is the SDK’s own error', async () => {
  const client = ofAnthropic('slow')
  const asked = { ...BODY, max_tokens: 100 }
  await client.messages.create(asked)
  await assert.rejects(client.messages.create(asked), Anthropic.RateLimitError)
  await assert.rejects(client.messages.batches.create({ requests: [] }), /call_not_metered/)
  assert.equal(upstream.calls.length, 1)
})
