// The pure rules of the wrappers, by tables: which addresses are whose, and the body as it was agreed.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { Gate, Policy, Principal, Request } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

const require = createRequire(import.meta.url)
const inside = (name) => require(join(dirname(require.resolve('quota-node/package.json')), 'lib/wrappers', name))
const { CALLS, FREE, ROUTES, Routes, SHAPES, among } = inside('routes.cjs')
const { rewrite } = inside('rewrite.cjs')
const { Call } = inside('call.cjs')

const CHAT = SHAPES.openai_chat
const MESSAGES = SHAPES.anthropic_messages

test('the longest end of a path says what it is', () => {
  const [served, called] = [new Routes(ROUTES), new Routes(CALLS)]
  for (const [routes, path, dialect, model] of [
    [served, '/v1/chat/completions', 'openai_chat'],
    [served, '/api/v1/chat/completions?x=1#y', 'openai_chat'],
    [served, '/v1/completions/', 'openai_completions'],
    [served, '//v1//messages', 'anthropic_messages'],
    [served, '/V1/Responses', 'openai_responses'],
    [served, '/v1/%65mbeddings;x=1', 'openai_embeddings'],
    [served, '/v1/x/../messages', 'anthropic_messages'],
    [served, '/v1/x%2f..%2fmessages', 'anthropic_messages'],
    [served, '/v1/x/%252e%252e/messages', 'anthropic_messages'],
    [served, '/v1;a/messages', 'anthropic_messages'],
    [served, '/v1/messages%0a', 'anthropic_messages'],
    [served, '/\\v1/messages', 'anthropic_messages'],
    [served, 'http://host/v1/messages', 'anthropic_messages'],
    [served, 'http://[', undefined],
    [served, '/v1beta/models/m;x:generateContent', 'gemini', 'm;x'],
    [served, '/v1beta/models/x%2F..%2Fm:generateContent', 'gemini', 'm'],
    [served, '/v1beta/models/a.b-c:generateContent', 'gemini', 'a.b-c'],
    [served, '/v1beta/models/a%3Ab:streamGenerateContent', 'gemini', 'a:b'],
    [served, '/chat/completions', undefined],
    [served, '/v1/messages/batches', undefined],
    [served, '/v1/amessages', undefined],
    [served, '/v1/%ff', undefined],
    [served, '/', undefined],
    [called, '/chat/completions', 'openai_chat'],
    [called, '/openai/deployments/d/embeddings', 'openai_embeddings'],
    [called, '/threads/t/messages', undefined],
  ]) {
    const route = routes.of(path)
    assert.deepEqual([route?.shape.dialect, route?.model], [dialect, model], path)
  }
})

test('an address is given another model where it names one', () => {
  const routes = new Routes(ROUTES)
  for (const [url, want] of [
    ['/v1beta/models/a:generateContent?key=k', '/v1beta/models/b%2Fc:generateContent?key=k'],
    ['https://x/v1beta/models/a:streamGenerateContent', 'https://x/v1beta/models/b%2Fc:streamGenerateContent'],
    ['/v1/chat/completions?x=a', '/v1/chat/completions?x=a'],
  ]) {
    assert.equal(routes.of(new URL(url, 'http://x').pathname).readdressed(url, 'b/c'), want)
  }
})

test('what costs nothing', () => {
  const isFree = among([...FREE, '/files', '/uploads/{id}/parts'])
  for (const [path, want] of [
    ['/v1/files', true],
    ['/v1/uploads/u/parts', true],
    ['/v1/uploads/u/v/parts', false],
    ['/v1/moderations', true],
    ['/v1/messages/count_tokens', true],
    ['/v1/responses/r/cancel', true],
    ['/v1/responses', false],
    ['/v1beta/models/m:countTokens', true],
  ]) {
    assert.equal(isFree(path), want, path)
  }
})

const terms = (most, disableTools = []) => ({ model: 'm', most, disableTools })

test('bounds are capped, set where there is none, and left out where they are another’s', () => {
  for (const [shape, asked, want] of [
    [CHAT, {}, { max_completion_tokens: 100 }],
    [CHAT, { max_tokens: 9 }, { max_tokens: 9 }],
    [CHAT, { max_tokens: 900, max_completion_tokens: 50 }, { max_tokens: 100, max_completion_tokens: 50 }],
    [CHAT, { max_tokens: null, max_output_tokens: 900 }, { max_completion_tokens: 100 }],
    [SHAPES.openai_completions, { max_completion_tokens: 9 }, { max_tokens: 100 }],
    [SHAPES.openai_responses, { max_tokens: 9, max_output_tokens: 101 }, { max_output_tokens: 100 }],
    [MESSAGES, { max_tokens: 99 }, { max_tokens: 99 }],
    [SHAPES.openai_embeddings, { max_tokens: 99 }, {}],
  ]) {
    const { body } = rewrite(shape, { model: 'asked', ...asked }, terms(100), false)
    assert.deepEqual(body, { model: 'm', ...want }, JSON.stringify(asked))
  }
  for (const [asked, want] of [
    [{}, { generationConfig: { maxOutputTokens: 100 } }],
    [{ generationConfig: { maxOutputTokens: 9, x: 1 } }, { generationConfig: { maxOutputTokens: 9, x: 1 } }],
    [{ generation_config: { max_output_tokens: 900 } }, { generation_config: { max_output_tokens: 100 } }],
    // Whichever of them the upstream reads.
    [
      { generation_config: { maxOutputTokens: 5, max_output_tokens: 900 }, generationConfig: { maxOutputTokens: 900 } },
      { generation_config: { maxOutputTokens: 5, max_output_tokens: 100 }, generationConfig: { maxOutputTokens: 100 } },
    ],
    [
      { generationConfig: null, generation_config: { maxOutputTokens: null } },
      { generationConfig: null, generation_config: { maxOutputTokens: 100 } },
    ],
  ]) {
    assert.deepEqual(rewrite(SHAPES.gemini, asked, terms(100), true), { body: want, stripUsage: false })
  }
})

test('thinking stays below the bound', () => {
  const thinking = (budget_tokens) => ({ type: 'enabled', budget_tokens })
  for (const [budget, most, want] of [
    [2000, 4000, thinking(2000)],
    [4000, 4000, thinking(3999)],
    [4000, 1025, thinking(1024)],
    [4000, 1024, undefined],
    [4000, 8, undefined],
  ]) {
    const { body } = rewrite(MESSAGES, { max_tokens: 8000, thinking: thinking(budget) }, terms(most), false)
    assert.deepEqual(body.thinking, want, `${budget} of ${most}`)
  }
})

test('streams end with their usage', () => {
  for (const [asked, strips] of [
    [{}, true],
    [{ stream_options: null }, true],
    [{ stream_options: { include_usage: false } }, true],
    [{ stream_options: { include_usage: true, other: 1 } }, false],
  ]) {
    const { body, stripUsage } = rewrite(CHAT, asked, terms(1), true)
    assert.deepEqual([stripUsage, body.stream_options.include_usage], [strips, true])
  }
  for (const shape of [SHAPES.openai_responses, MESSAGES]) {
    const { body, stripUsage } = rewrite(shape, {}, terms(1), true)
    assert.deepEqual([stripUsage, body.stream_options], [false, undefined])
  }
})

test('tools are taken away, and nothing of what was asked is changed', () => {
  const [search, sum] = ['web_search', 'sum'].map((name) => ({ type: 'function', function: { name } }))
  const without = terms(1, ['web_search'])
  for (const [shape, asked, want] of [
    [CHAT, { tools: [search], tool_choice: 'auto', parallel_tool_calls: true, web_search_options: {} }, {}],
    [CHAT, { tools: [search, sum], tool_choice: search }, { tools: [sum] }],
    [CHAT, { tools: [search, sum], tool_choice: 'auto' }, { tools: [sum], tool_choice: 'auto' }],
    [CHAT, { functions: [{ name: 'web_search' }], function_call: { name: 'web_search' } }, {}],
    [MESSAGES, { tools: [{ type: 'x', name: 'web_search' }, { name: 'sum' }] }, { tools: [{ name: 'sum' }] }],
  ]) {
    const before = JSON.stringify(asked)
    const { model, max_tokens, max_completion_tokens, ...rest } = rewrite(shape, asked, without, false).body
    assert.deepEqual([model, max_tokens ?? max_completion_tokens, rest], ['m', 1, want], before)
    assert.equal(JSON.stringify(asked), before)
  }
  const declared = (...names) => ({ functionDeclarations: names.map((name) => ({ name })) })
  const tools = [declared('web_search', 'sum'), { web_search: {}, other: {} }, declared('web_search'), 'x']
  const { body } = rewrite(SHAPES.gemini, { tools }, without, false)
  assert.deepEqual(body.tools, [declared('sum'), { other: {} }, 'x'])
})

test('what can’t be rewritten is told, by its field', () => {
  for (const [shape, asked, field, stream, names] of [
    [CHAT, { stream_options: 'no' }, 'stream_options', true],
    [CHAT, { tools: {} }, 'tools', false, ['x']],
    [MESSAGES, { thinking: 3 }, 'thinking', false],
    [SHAPES.gemini, { generationConfig: [] }, 'generationConfig', false],
    [SHAPES.gemini, { tools: 3 }, 'tools', false, ['x']],
  ]) {
    assert.throws(() => rewrite(shape, asked, terms(1, names), stream), { name: 'RequestError', field })
  }
})

test('what a body says of its prototype stays a member', () => {
  const { body } = rewrite(CHAT, JSON.parse('{"__proto__": {"max_tokens": 1}, "model": "x"}'), terms(5), false)
  assert.equal(JSON.stringify(body), '{"__proto__":{"max_tokens":1},"model":"m","max_completion_tokens":5}')
})

test('a lease that lives shortly is told of in time', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const clock = new ManualClock()
  const policy = Policy.fromObject({ settings: { lease_ttl_ms: 1000 }, models: { m: {} }, tenants: { acme: { models: ['m'] } } })
  const gate = new Gate(policy, { clock })
  const call = new Call(gate.admit(new Principal({ tenant: 'acme' }), new Request({ model: 'm' })).lease, CHAT)
  for (let turn = 0; turn < 5; turn++) {
    clock.advance(700)
    t.mock.timers.tick(334)
    gate.sweep()
    assert.ok(call.lease.isOpen, `turn ${turn}`)
  }
  call.neverSent()
})
