// The AI SDK's middleware: with a real provider over an upstream on loopback, and with each specification of models.

import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import * as ai6 from 'ai'
import * as mocks6 from 'ai/test'
import * as ai5 from 'ai5'
import * as mocks5 from 'ai5/test'
import * as ai7 from 'ai7'
import * as mocks7 from 'ai7/test'
import { Gate, Policy, Refused, Request } from 'quota-node'
import { quotaMiddleware } from 'quota-node/ai'
import { ManualClock } from 'quota-node/testing'
import { Books, closed, learn, newGate, principal, until } from './books.mjs'
import { INPUT, OUTPUT, Upstream } from './upstream.mjs'

const { APICallError, generateText, jsonSchema, streamText, tool, wrapLanguageModel } = ai6
const ONCE = { maxRetries: 0, prompt: 'Say a word.' }

const rejections = []
process.on('unhandledRejection', (reason) => rejections.push(reason))

let upstream
let gate
let books
let provider

before(async () => {
  upstream = await Upstream.start()
  provider = createOpenAICompatible({ name: 'up', baseURL: `${upstream.url}/v1`, includeUsage: true })
})
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

const modelOf = (tenant, { name = 'm', ...options } = {}) =>
  wrapLanguageModel({
    model: provider(name),
    middleware: quotaMiddleware({ gate, who: principal(tenant), ...options }),
  })

const quiet = { onError: () => {} }

check('an answer is settled by its usage', async () => {
  const { text, usage } = await generateText({ model: modelOf(), ...ONCE })
  assert.deepEqual([text, usage.outputTokens], ['word '.repeat(4), OUTPUT])
  assert.equal(upstream.calls[0].body.max_tokens, 400)
  books.settled(1)
})

check('a stream is settled by its last part', async () => {
  const result = streamText({ model: modelOf(), ...ONCE, maxOutputTokens: 50 })
  assert.equal(await result.text, 'word '.repeat(4))
  assert.equal(upstream.calls[0].body.max_tokens, 50)
  books.settled(1)
})

check('what a prompt carries is counted', async () => {
  const png = 'iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAYAAAB/HSuD'
  const tools = { find: tool({ description: 'finds', inputSchema: jsonSchema({ type: 'object', properties: {} }) }) }
  const held = async (messages, more) => {
    const { calls } = upstream
    upstream.steps = [{ how: 'hang' }]
    const before = calls.length
    const run = generateText({ model: modelOf(), maxRetries: 0, messages, ...more })
    await until(() => calls.length > before)
    const used = books.used('input_tpd')
    upstream.go()
    await run
    const settled = books.used('input_tpd')
    upstream.reset()
    return used - settled + INPUT
  }
  const user = (content) => [{ role: 'user', content }]
  const word = await held(user('x'))
  assert.ok((await held(user('x '.repeat(500)))) > word + 300)
  assert.ok((await held(user([{ type: 'image', image: png, mediaType: 'image/png' }]))) > word + 50)
  const file = { type: 'file', data: new Uint8Array(30_000), mediaType: 'application/pdf' }
  assert.ok((await held(user([file]))) > word + 300)
  assert.ok((await held(user('x'), { tools })) > word)
  const call = { type: 'tool-call', toolCallId: 'c', toolName: 'find', input: { about: 'y '.repeat(400) } }
  const output = { type: 'text', value: 'z '.repeat(400) }
  const story = [
    ...user('x'),
    { role: 'assistant', content: [{ type: 'reasoning', text: 'r' }, call] },
    { role: 'tool', content: [{ type: 'tool-result', toolCallId: 'c', toolName: 'find', output }] },
  ]
  assert.ok((await held(story, { tools })) > word + 500)
})

check('a refusal is an error that the SDK knows', async () => {
  const model = modelOf('slow')
  await generateText({ model, ...ONCE })
  await assert.rejects(generateText({ model, ...ONCE }), (error) => {
    assert.ok(APICallError.isInstance(error) && error instanceof Refused)
    assert.ok(ai5.APICallError.isInstance(error) && ai7.APICallError.isInstance(error))
    assert.deepEqual([error.statusCode, error.code, error.refusal.status], [429, 'request_rate_exceeded', 429])
    assert.ok(Number(error.responseHeaders['retry-after']) > 50)
    assert.equal(JSON.parse(error.responseBody).error.reason, 'request_rate_exceeded')
    return true
  })
  const errors = []
  const result = streamText({ model, ...ONCE, onError: ({ error }) => errors.push(error) })
  await result.consumeStream()
  assert.equal(errors[0].statusCode, 429)
  assert.equal(upstream.calls.length, 1)
})

/** A gate with these limits for `acme`. */
function strict(limits, clock) {
  const models = { m: { price: { input: 1, output: 2 }, max_output: 400 } }
  return new Gate(Policy.fromObject({ models, tenants: { acme: { ...limits, models: ['m'] } } }), { clock })
}

check('a refusal that is over soon is tried again by the SDK', async () => {
  const clock = new ManualClock()
  gate = strict({ requests_per_second: { hard: 1 } }, clock)
  const model = modelOf()
  await generateText({ model, ...ONCE })
  const again = generateText({ model, ...ONCE, maxRetries: 1 })
  await until(() => gate.recent('acme', { lastMs: 10_000 }).some((entry) => entry.event === 'refused'))
  clock.advance(1000)
  assert.equal((await again).text, 'word '.repeat(4))
  assert.equal(upstream.calls.length, 2)
})

check('a refusal that lasts is not tried again', async () => {
  const model = modelOf('soft', { name: 'm' })
  const who = principal('soft')
  const dear = new Request({ model: 'm', inputTokens: 900_000, maxOutputTokens: 400 })
  gate.admit(who, dear).lease.settle({ prompt_tokens: 990_000, completion_tokens: 4900 })
  await assert.rejects(generateText({ model, prompt: 'x '.repeat(3000) }), (error) => {
    assert.deepEqual([error.isRetryable, error.code], [false, 'budget_exceeded'])
    return true
  })
  // The SDK waits for less than this, and would ask again in vain.
  gate = strict({ requests_per_minute: { hard: 1 } }, new ManualClock())
  await generateText({ model: modelOf(), ...ONCE })
  await assert.rejects(generateText({ model: modelOf(), prompt: 'x' }), (error) => {
    assert.deepEqual([error.isRetryable, error.code, error.retryAfterMs], [false, 'request_rate_exceeded', 60_000])
    return true
  })
})

check('each attempt has a lease, and what was not run is given back', async () => {
  const headers = { 'retry-after-ms': '1' }
  upstream.steps = [{ status: 429, headers }, { status: 500, headers }]
  await generateText({ model: modelOf(), prompt: 'x', maxRetries: 2 })
  assert.deepEqual([books.inFlight, books.used('rpd'), books.unresolved], [0, 2, ['upstream_failed']])
})

check('an upstream that is not there, or breaks off', async () => {
  const nowhere = createOpenAICompatible({ name: 'no', baseURL: await closed() })
  const middleware = quotaMiddleware({ gate, who: principal() })
  await assert.rejects(generateText({ model: wrapLanguageModel({ model: nowhere('m'), middleware }), ...ONCE }))
  books.settled(0)
  upstream.steps = [{ how: 'break' }, { how: 'breakMidway' }]
  await assert.rejects(generateText({ model: modelOf(), ...ONCE }))
  assert.deepEqual(books.unresolved, ['upstream_failed'])
  await streamText({ model: modelOf(), ...ONCE, ...quiet }).consumeStream({ onError: () => {} })
  assert.deepEqual([books.inFlight, books.unresolved.length], [0, 2])
})

check('a call that is aborted while it waits gives up its place', async () => {
  books = new Books(gate, 'queue')
  upstream.steps = [{ how: 'hang' }]
  const first = generateText({ model: modelOf('queue'), ...ONCE })
  await until(() => upstream.calls.length === 1)
  const controller = new AbortController()
  const second = generateText({ model: modelOf('queue'), ...ONCE, abortSignal: controller.signal })
  await until(() => books.waiting === 1)
  controller.abort()
  await assert.rejects(second, { name: 'AbortError' })
  assert.equal(books.waiting, 0)
  upstream.go()
  await first
  assert.deepEqual([books.used('rpd'), books.inFlight, books.unresolved], [1, 0, []])
})

check('a call that is aborted later is unresolved', async () => {
  upstream.steps = [{ how: 'hang' }, { how: 'hangMidway' }]
  const controller = new AbortController()
  const abortSignal = controller.signal
  const first = generateText({ model: modelOf(), ...ONCE, abortSignal })
  await until(() => upstream.calls.length === 1)
  const { textStream } = streamText({ model: modelOf(), ...ONCE, ...quiet, abortSignal })
  const words = textStream[Symbol.asyncIterator]()
  await words.next()
  assert.equal(books.inFlight, 2)
  controller.abort()
  await assert.rejects(first)
  while (!(await words.next()).done);
  await until(() => books.inFlight === 0)
  assert.equal(books.unresolved.length, 2)
  assert.ok(gate.unresolved()[1].seen.outputTotal >= 1)
  await until(() => upstream.left === 2)
})

check('who cancels a stream leaves it unresolved', async () => {
  upstream.steps = [{ how: 'hangMidway' }]
  const model = modelOf()
  const { stream } = await model.doStream({ prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }] })
  const reader = stream.getReader()
  let part
  do part = (await reader.read()).value
  while (part.type !== 'text-delta')
  assert.equal(books.inFlight, 1)
  await reader.cancel()
  assert.equal(books.inFlight, 0)
  assert.ok(gate.unresolved()[0].seen.outputTotal >= 1)
  await until(() => upstream.left === 1)
})

check('a stream that outgrows its limit ends with the refusal', async () => {
  learn(gate)
  books = new Books(gate, 'short')
  upstream.steps = [{ words: 300, how: 'hangMidway' }]
  const errors = []
  const result = streamText({
    model: modelOf('short'),
    ...ONCE,
    maxOutputTokens: 390,
    onError: ({ error }) => errors.push(error),
  })
  await result.consumeStream({ onError: () => {} })
  assert.ok(errors[0] instanceof Refused && APICallError.isInstance(errors[0]))
  assert.equal(books.unresolved.length, 1)
  await until(() => upstream.left === 1)
})

check('the call is made as it was agreed', async () => {
  const web_search = tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }) })
  const asked = { ...ONCE, maxOutputTokens: 100, tools: { web_search }, toolChoice: 'auto' }
  await assert.rejects(generateText({ model: modelOf('soft', { name: 'dear' }), ...asked }), { code: 'model_unavailable' })
  assert.equal(upstream.calls.length, 0)
  await generateText({ model: modelOf('soft', { name: 'dear', models: (name) => provider(name) }), ...asked })
  const [{ body }] = upstream.calls
  assert.deepEqual([body.model, body.max_tokens, body.tools, body.tool_choice], ['m', 8, undefined, undefined])
  assert.deepEqual(gate.unresolved(), [])
})

check('what it is given is checked', async () => {
  for (const options of [undefined, {}, { gate }, { gate, who: 'acme' }, { gate, who: principal(), models: 3 }]) {
    assert.throws(() => quotaMiddleware(options), TypeError)
  }
  await assert.rejects(generateText({ model: modelOf('acme', { who: () => 'acme' }), ...ONCE }), /who: it gave no Principal/)
  await generateText({ model: modelOf('acme', { who: async (params) => (assert.ok(params.prompt), principal()) }), ...ONCE })
  books.settled(1)
})

const FLAT = { inputTokens: INPUT, outputTokens: OUTPUT, totalTokens: INPUT + OUTPUT, cachedInputTokens: 3, reasoningTokens: 2 }
const PARTS = {
  inputTokens: { total: INPUT, noCache: 8, cacheRead: 3, cacheWrite: 0 },
  outputTokens: { total: OUTPUT, text: 5, reasoning: 2 },
}
const UNKNOWN = { inputTokens: { total: undefined }, outputTokens: { total: undefined } }

for (const [name, ai, Model, usage, unknown, stop] of [
  ['ai 5, v2', ai5, mocks5.MockLanguageModelV2, FLAT, {}, 'stop'],
  ['ai 6, v3', ai6, mocks6.MockLanguageModelV3, PARTS, UNKNOWN, { unified: 'stop', raw: 'stop' }],
  ['ai 7, v4', ai7, mocks7.MockLanguageModelV4, PARTS, UNKNOWN, { unified: 'stop', raw: 'stop' }],
]) {
  const start = (used, { error } = {}) => {
    const parts = [
      { type: 'stream-start', warnings: [] },
      { type: 'text-start', id: '1' },
      { type: 'text-delta', id: '1', delta: 'word' },
      { type: 'text-end', id: '1' },
      ...(error ? [{ type: 'error', error }] : []),
      { type: 'finish', usage: used, finishReason: stop },
    ]
    const model = new Model({
      modelId: 'm',
      doGenerate: async () => ({
        content: [{ type: 'text', text: 'word' }],
        usage: used,
        finishReason: stop,
        warnings: [],
      }),
      doStream: async () => ({ stream: ReadableStream.from(parts) }),
    })
    return ai.wrapLanguageModel({ model, middleware: quotaMiddleware({ gate, who: principal() }) })
  }

  check(`${name}: answers and streams are settled by their usage`, async () => {
    const model = start(usage)
    assert.equal((await ai.generateText({ model, ...ONCE })).text, 'word')
    assert.equal(await ai.streamText({ model, ...ONCE }).text, 'word')
    books.settled(2)
    const [entry] = gate.recent('acme', { lastMs: 60_000 }).filter(({ event }) => event === 'settled')
    assert.equal(entry.charged.output_tokens, String(OUTPUT))
  })

  check(`${name}: unknown usage is unresolved`, async () => {
    const model = start(unknown)
    await ai.generateText({ model, ...ONCE })
    await ai.streamText({ model, ...ONCE }).text
    assert.deepEqual([books.inFlight, books.unresolved], [0, ['no_usage', 'no_usage']])
    await ai.streamText({ model: start(unknown, { error: new Error('no') }), ...ONCE, ...quiet }).consumeStream({ onError: () => {} })
    assert.deepEqual([books.inFlight, books.unresolved.length], [0, 3])
  })
}
