// The same application behind the gate in Express, Fastify and Hono, with real askers who really leave.

import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import Anthropic from '@anthropic-ai/sdk'
import express from 'express'
import OpenAI from 'openai'
import { Gate, Policy, Principal } from 'quota-node'
import { ROUTES } from 'quota-node/express'
import { Asker } from './asker.mjs'
import { Books, keyOf, learn, newGate, principal, until } from './books.mjs'
import { HOSTS } from './servers.mjs'
import { INPUT, OUTPUT, Upstream } from './upstream.mjs'

const CHAT = '/v1/chat/completions'
const MESSAGES = [{ role: 'user', content: 'Say a word.' }]
const BODY = { model: 'm', messages: MESSAGES }
const GEMINI = { contents: [{ role: 'user', parts: [{ text: 'Say a word.' }] }] }
const BODIES = {
  [CHAT]: BODY,
  '/v1/completions': { model: 'm', prompt: 'Say a word.' },
  '/v1/responses': { model: 'm', input: 'Say a word.' },
  '/v1/messages': { ...BODY, max_tokens: 100 },
  '/v1beta/models/m:generateContent': GEMINI,
  '/v1beta/models/m:streamGenerateContent': GEMINI,
}

const rejections = []
process.on('unhandledRejection', (reason) => rejections.push(reason))

for (const [name, start] of Object.entries(HOSTS)) {
  describe(name, () => {
    let upstream
    let gate
    let books
    let server

    before(async () => (upstream = await Upstream.start()))
    after(() => upstream.stop())

    beforeEach(async () => {
      upstream.reset()
      rejections.length = 0
      gate = newGate()
      books = new Books(gate)
      server = await start(upstream, { gate })
    })

    // Every test ends with its server, and with the books even.
    const check = (title, run) =>
      test(title, async () => {
        try {
          await run()
          books.even()
          assert.deepEqual(rejections, [])
        } finally {
          upstream.go()
          await server.stop()
        }
      })

    const restart = async (options, more) => {
      await server.stop()
      server = await start(upstream, { gate, ...options }, more)
    }
    const headersOf = (tenant, more) => ({
      'content-type': 'application/json',
      authorization: `Bearer ${keyOf(gate, tenant)}`,
      ...more,
    })
    const post = ({ path = CHAT, body = BODY, tenant, headers } = {}) =>
      fetch(server.url + path, {
        method: 'POST',
        headers: headersOf(tenant, headers),
        body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
      })
    const asks = ({ path = CHAT, body = BODY, tenant, headers } = {}) =>
      Asker.post(server.url, path, headersOf(tenant, headers), body)
    const how = (what) => ({ headers: { 'x-how': what } })

    for (const [path, body] of Object.entries(BODIES)) {
      for (const stream of path.includes('models') ? [undefined] : [false, true]) {
        check(`${path} is settled as it was reported, stream ${stream}`, async () => {
          const answer = await post({ path, body: { ...body, stream } })
          const text = await answer.text()
          assert.equal(answer.status, 200, text)
          // Who has read the answer finds everything in its place.
          books.settled(1)
          assert.match(text, /word/)
          // Who has not asked for the usage of a stream is not shown the chunk that has it.
          assert.equal(/"prompt_tokens"/.test(text), !stream && /chat|\/completions/.test(path))
        })
      }
    }

    check('embeddings have no output', async () => {
      const answer = await post({ path: '/v1/embeddings', body: { model: 'm', input: 'a word' } })
      assert.equal((await answer.json()).data.length, 1)
      books.settled(1, { output: 0 })
    })

    check('who asks for the usage of a stream is shown it', async () => {
      const answer = await post({ body: { ...BODY, stream: true, stream_options: { include_usage: true } } })
      assert.match(await answer.text(), /"prompt_tokens":11.*data: \[DONE\]\n\n$/s)
      books.settled(1)
    })

    check("the providers' own clients work through it", async () => {
      const openai = new OpenAI({ apiKey: keyOf(gate), baseURL: `${server.url}/v1`, maxRetries: 0 })
      const made = await openai.chat.completions.create(BODY)
      assert.equal(made.usage.completion_tokens, OUTPUT)
      let words = ''
      for await (const chunk of await openai.chat.completions.create({ ...BODY, stream: true })) {
        words += chunk.choices[0].delta.content ?? ''
      }
      assert.equal(words, 'word '.repeat(4))
      const anthropic = new Anthropic({ apiKey: keyOf(gate), baseURL: server.url, maxRetries: 0 })
      const message = await anthropic.messages.stream({ ...BODY, max_tokens: 9 }).finalMessage()
      assert.equal(message.usage.output_tokens, OUTPUT)
      books.settled(3)
      const stranger = new OpenAI({ apiKey: 'no', baseURL: `${server.url}/v1`, maxRetries: 0 })
      await assert.rejects(stranger.chat.completions.create(BODY), OpenAI.AuthenticationError)
      const slow = { apiKey: keyOf(gate, 'slow'), baseURL: `${server.url}/v1`, maxRetries: 0 }
      await new OpenAI(slow).chat.completions.create(BODY)
      await assert.rejects(new OpenAI(slow).chat.completions.create(BODY), (error) => {
        assert.ok(error instanceof OpenAI.RateLimitError)
        assert.ok(Number(error.headers.get('retry-after')) > 50)
        assert.equal(error.error.reason, 'request_rate_exceeded')
        return true
      })
      const slower = new Anthropic({ ...slow, baseURL: server.url })
      await assert.rejects(slower.messages.create({ ...BODY, max_tokens: 9 }), Anthropic.RateLimitError)
      books.settled(3)
    })

    check('what is no request is answered in its manner', async () => {
      await restart({ maxBody: 4096 })
      const text = JSON.stringify(BODY)
      for (const [body, status, headers] of [
        ['x', 400],
        ['[]', 400],
        ['{"model": "m"', 400],
        ['', 400],
        ['['.repeat(4000), 400],
        [Buffer.from([0xff, 0xfe, 0x7b, 0x7d]), 400],
        [gzipSync(text), 415, { 'content-encoding': 'gzip' }],
        [' '.repeat(5000), 413],
        [' '.repeat(100_000), 413],
        [text, 400, { 'idempotency-key': 'a b' }],
        [text, 400, { 'x-agent-run-id': 'a b' }],
        [JSON.stringify({ ...BODY, stream: true, stream_options: 3 }), 400],
      ]) {
        for (const path of [CHAT, '/v1/messages']) {
          if (path !== CHAT && String(body).includes('stream_options')) continue
          const answer = await post({ path, body, headers })
          const { error } = await answer.json()
          assert.deepEqual([answer.status, 'details' in error], [status, path !== CHAT], `${String(body).slice(0, 20)} ${path}`)
        }
      }
      assert.equal(upstream.calls.length, 0)
      books.settled(0)
    })

    check('a body that comes in pieces and is too large is refused', async () => {
      await restart({ maxBody: 4096 })
      for (const pieces of [5, 500]) {
        let left = pieces
        const pull = (controller) => (left-- > 0 ? controller.enqueue(Buffer.alloc(1024, 32)) : controller.close())
        const body = new ReadableStream({ pull })
        const options = { method: 'POST', headers: headersOf(), body, duplex: 'half' }
        const answer = await fetch(server.url + CHAT, options)
        assert.deepEqual([answer.status, (await answer.json()).error.code], [413, 'body_too_large'])
      }
      books.settled(0)
    })

    check('others wait for their turn', async () => {
      books = new Books(gate, 'queue')
      upstream.steps = [{ how: 'hang' }]
      const first = post({ tenant: 'queue' })
      await until(() => upstream.calls.length === 1)
      const second = post({ tenant: 'queue' })
      await until(() => books.waiting === 1)
      assert.equal(upstream.calls.length, 1)
      upstream.go()
      assert.equal((await first).status, 200)
      const answer = await second
      assert.ok(Number(answer.headers.get('x-quota-waited-ms')) > 0)
      await answer.text()
      assert.deepEqual([books.used('rpd'), books.inFlight], [2, 0])
    })

    check('who has waited too long is told, and nobody has to sweep', async () => {
      await restart({ who: () => new Principal({ tenant: 'queue', lane: 'hasty' }) })
      upstream.steps = [{ how: 'hang' }]
      const first = post()
      await until(() => upstream.calls.length === 1)
      const late = await post()
      assert.deepEqual([late.status, (await late.json()).error.reason], [503, 'queue_timeout'])
      upstream.go()
      await (await first).text()
      books = new Books(gate, 'queue')
      assert.deepEqual([books.used('rpd'), books.inFlight, books.waiting], [1, 0, 0])
    })

    check('who leaves while waiting gives up the place', async () => {
      books = new Books(gate, 'queue')
      upstream.steps = [{ how: 'hang' }]
      const first = post({ tenant: 'queue' })
      await until(() => upstream.calls.length === 1)
      const second = await asks({ tenant: 'queue' })
      await until(() => books.waiting === 1)
      second.hangUp()
      await until(() => books.waiting === 0)
      upstream.go()
      assert.equal((await (await first).json()).object, 'chat.completion')
      assert.deepEqual([books.used('rpd'), books.used('output_tpd'), books.inFlight], [1, OUTPUT, 0])
      assert.equal(upstream.calls.length, 1)
      assert.deepEqual(books.unresolved, [])
    })

    check('who leaves a stream leaves it unresolved, and the upstream is left', async () => {
      upstream.steps = [{ how: 'hangMidway' }]
      const asker = await asks({ body: { ...BODY, stream: true } })
      await asker.sees('word')
      assert.equal(books.inFlight, 1)
      asker.hangUp()
      await until(() => books.inFlight === 0)
      const [left] = gate.unresolved()
      assert.ok(left.seen.outputTotal >= 1)
      assert.equal(books.used('output_tpd'), 400)
      await until(() => upstream.left === 1)
    })

    check('who leaves before the answer leaves it unresolved', async () => {
      upstream.steps = [{ how: 'hang' }]
      const asker = await asks()
      await until(() => upstream.calls.length === 1)
      asker.hangUp()
      await until(() => books.inFlight === 0)
      assert.deepEqual(books.unresolved, ['dropped'])
    })

    check('who leaves amid the body holds nothing', async () => {
      const asker = await asks({ headers: { 'content-length': 5000 } })
      asker.hangUp()
      const answer = await post()
      await answer.text()
      books.settled(1)
    })

    check('the slot is held to the last byte', async () => {
      upstream.steps = [{ how: 'hangMidway' }]
      const answer = await post({ body: { ...BODY, stream: true } })
      const reader = answer.body.getReader()
      await reader.read()
      assert.equal(books.inFlight, 1)
      upstream.go()
      while (!(await reader.read()).done);
      books.settled(1)
    })

    check('a slow asker slows the upstream', async () => {
      upstream.steps = [{ pieces: 3000, padding: 10_000 }]
      const asker = await asks({ body: { ...BODY, stream: true } })
      await asker.sees('word')
      asker.socket.pause()
      // What the buffers of sockets hold is a small part of it.
      let [looks, sent] = [0, 0]
      await until(() => {
        looks = upstream.isBlocked && upstream.sent === sent ? looks + 1 : 0
        sent = upstream.sent
        return looks > 100
      })
      assert.ok(upstream.sent < 2000, `${upstream.sent} of 3000 pieces`)
      assert.equal(books.inFlight, 1)
      asker.socket.resume()
      await until(() => books.inFlight === 0)
      await until(() => asker.text.slice(-100).includes('[DONE]'))
      books.settled(1)
    })

    for (const [status, charged] of [
      [400, 0],
      [404, 0],
      [429, 0],
      [500, 1],
      [503, 1],
      [408, 1],
    ]) {
      check(`an upstream that fails with ${status}`, async () => {
        upstream.steps = [{ status, headers: { 'retry-after': '7' } }]
        const answer = await post()
        await answer.text()
        assert.deepEqual([answer.status, answer.headers.get('retry-after')], [status, '7'])
        assert.equal(books.inFlight, 0)
        assert.deepEqual(books.unresolved, Array(charged).fill('upstream_failed'))
        assert.equal(books.used('rpd'), charged)
      })
    }

    check('a stream that breaks off is unresolved', async () => {
      upstream.steps = [{ how: 'breakMidway' }]
      const answer = await post({ body: { ...BODY, stream: true } })
      await assert.rejects(answer.text())
      await until(() => books.inFlight === 0)
      assert.equal(books.unresolved.length, 1)
    })

    for (const stream of [false, true]) {
      check(`an answer without usage is unresolved, stream ${stream}`, async () => {
        upstream.steps = [{ usage: false }]
        await (await post({ body: { ...BODY, stream } })).text()
        assert.deepEqual(books.unresolved, ['no_usage'])
        assert.equal(books.inFlight, 0)
      })
    }

    check('an application that raises', async () => {
      assert.equal((await post(how('raise'))).status, 500)
      assert.deepEqual(books.unresolved, ['upstream_failed'])
      assert.equal(books.inFlight, 0)
      assert.equal((await post(how('raise-404'))).status, 404)
      assert.equal(books.used('rpd'), 1)
      assert.equal(await (await post(how('text'))).text(), 'not json')
      assert.deepEqual(books.unresolved, ['upstream_failed', 'no_usage'])
    })

    check('the body is handed on as it was agreed', async () => {
      const tools = [{ type: 'web_search' }]
      const body = { ...BODY, model: 'dear', max_tokens: 100, tools, tool_choice: 'auto' }
      const answer = await post({ body, tenant: 'soft' })
      await answer.text()
      assert.match(answer.headers.get('x-quota-degraded'), /^0;/)
      assert.deepEqual(upstream.calls[0].body, { model: 'm', messages: MESSAGES, max_tokens: 8 })
      const path = '/v1beta/models/dear:generateContent'
      await (await post({ path, body: { ...GEMINI, tools: [{ web_search: {} }] }, tenant: 'soft' })).text()
      assert.equal(upstream.calls[1].path, '/v1beta/models/m:generateContent')
      assert.deepEqual(upstream.calls[1].body, { ...GEMINI, tools: [], generationConfig: { maxOutputTokens: 8 } })
      assert.deepEqual(books.unresolved, [])
    })

    check('what is not changed stands as it was written', async () => {
      const text = JSON.stringify({ ...BODY, max_tokens: 10, seed: 1 }, null, 4).replace('"seed": 1', '"seed": 9007199254740993')
      const told = await (await post({ body: text, ...how('echo') })).json()
      assert.equal(told.text, text)
      assert.deepEqual([told.headers['content-length'], told.headers['accept-encoding']], [String(text.length), 'identity'])
      assert.equal((await (await post(how('echo'))).json()).body.max_completion_tokens, 400)
    })

    check('of members that stand twice one is handed on', async () => {
      const rest = '"messages":[{"role":"user","content":"x: \\"y\\\\"}]'
      for (const [text, want] of [
        [`{"max_completion_tokens":5,"model":"m",${rest}}`, 5],
        [`{"max_completion_tokens":400,"max_completion_tokens":5,"model":"m",${rest}}`, 5],
        [`{"max_completion_tokens":7,"model":"dear","m\\u006fdel":"m",${rest}}`, 7],
        [`{"max_completion_tokens":7,"model":"m","metadata":{"a":1,"a":2},${rest}}`, 7],
      ]) {
        const told = await (await post({ body: text, ...how('echo') })).json()
        assert.deepEqual([told.text, told.body.max_completion_tokens], [JSON.stringify(JSON.parse(text)), want])
      }
    })

    check('answers tell the limits and their id', async () => {
      const answer = await post({ body: { ...BODY, stream: true } })
      await answer.text()
      assert.equal(answer.headers.get('x-ratelimit-limit-requests'), '1000')
      assert.ok(answer.headers.has('ratelimit'))
      const id = answer.headers.get('x-request-id')
      assert.match(id, /^req-[0-9a-f]{32}$/)
      assert.equal(gate.explain(id).at(-1).event, 'settled')
      const other = await post({ path: '/v1/messages', body: BODIES['/v1/messages'] })
      await other.text()
      assert.ok(other.headers.has('anthropic-ratelimit-requests-limit') && other.headers.has('request-id'))
    })

    check('an id is written so that a header carries it', async () => {
      const tenant = 'tén日'
      const tenants = { [tenant]: { requests_per_day: 10, models: ['m'] } }
      gate = new Gate(Policy.fromObject({ models: { m: { max_output: 400 } }, tenants }))
      books = new Books(gate, tenant)
      await restart()
      const answer = await post({ tenant, headers: { 'idempotency-key': 'k-1' } })
      await answer.text()
      assert.deepEqual([answer.status, answer.headers.get('x-request-id')], [200, 't%C3%A9n%E6%97%A5:k-1'])
      assert.equal(gate.explain(`${tenant}:k-1`).at(-1).event, 'settled')
    })

    check('a request runs once under its idempotency key', async () => {
      upstream.steps = [{ how: 'hang' }]
      const headers = headersOf('acme', { 'idempotency-key': 'k-1' })
      const first = post({ headers })
      await until(() => upstream.calls.length === 1)
      const again = await post({ headers })
      assert.deepEqual([again.status, again.headers.get('x-should-retry')], [409, 'false'])
      assert.equal((await again.json()).error.code, 'request_in_progress')
      upstream.go()
      const answer = await first
      assert.equal(answer.headers.get('x-request-id'), 'acme:k-1')
      await answer.text()
      books.settled(1)
    })

    check('a stream that outgrows its limit ends with the refusal', async () => {
      learn(gate)
      // What comes after the cut is not waited for.
      upstream.steps = [{ words: 300, how: 'hangMidway' }]
      const client = new OpenAI({ apiKey: keyOf(gate, 'short'), baseURL: `${server.url}/v1`, maxRetries: 0 })
      const stream = await client.chat.completions.create({ ...BODY, stream: true, max_tokens: 390 })
      await assert.rejects(async () => {
        for await (const chunk of stream) assert.ok(chunk)
      }, /output_tpd of tenant:short/)
      await until(() => upstream.left === 1)
      books = new Books(gate, 'short')
      assert.ok(books.used('output_tpd') <= 420)
      assert.equal(books.unresolved.length, 1)
    })

    check('everything else passes', async () => {
      assert.equal(await (await fetch(server.url + CHAT)).text(), 'looked')
      assert.equal((await fetch(server.url + CHAT, { method: 'HEAD' })).status, 200)
      const asked = await fetch(server.url + CHAT, { method: 'OPTIONS' })
      assert.ok(asked.status < 500 && !asked.headers.has('x-ratelimit-limit-requests'))
      books.settled(0)
    })

    check('what routers overlook is metered', async () => {
      for (const path of [`${CHAT}/`, '//v1//chat/completions', '/V1/Chat/Completions', '/v1/ch%61t/completions', '/x/..%2fv1/chat/completions']) {
        const answer = await fetch(server.url + path, { method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } })
        assert.equal(answer.status, 401, path)
      }
      assert.equal((await post({ path: `${CHAT}/`, ...how('text') })).status, 200)
      assert.equal(books.used('rpd'), 1)
    })

    check('a handler may end the lease by itself', async () => {
      await (await post(how('settle'))).text()
      assert.deepEqual([books.charged, books.inFlight, books.unresolved], [[1, 3, 2], 0, []])
      await (await post(how('cancelled'))).text()
      assert.deepEqual([books.inFlight, books.unresolved], [0, ['upstream_failed']])
    })

    check('a handler may meter its stream by itself', async () => {
      const body = { ...BODY, stream: true, stream_options: { include_usage: true } }
      assert.match(await (await post({ body, ...how('meter') })).text(), /data: \[DONE\]\n\n$/)
      books.settled(1)
    })

    check('who asks may be told by a function, and routes by a table', async () => {
      let asked
      await restart({ who: async (request) => ((asked = request), principal()), routes: { ...ROUTES, '/other': 'openai_chat' } })
      const answer = await fetch(`${server.url}/v1/other`, {
        method: 'POST',
        body: JSON.stringify(BODY),
        headers: { 'content-type': 'application/json', ...how('text').headers },
      })
      await answer.text()
      assert.ok(asked)
      assert.equal(books.used('rpd'), 1)
    })

    check('who gives no principal is an error of the application', async () => {
      await restart({ who: () => 'acme' })
      assert.equal((await post()).status, 500)
      books.settled(0)
    })

    check('many at once', async () => {
      const paths = Object.keys(BODIES).slice(0, 4)
      const one = async (_, number) => {
        const path = paths[number % 4]
        const answer = await post({ path, body: { ...BODIES[path], stream: number % 3 === 0 } })
        await answer.text()
        return answer.status
      }
      const found = await Promise.all(Array.from({ length: 96 }, one))
      assert.deepEqual(new Set(found), new Set([200]))
      books.settled(96)
    })
  })
}
