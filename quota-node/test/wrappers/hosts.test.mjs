// What each host has of its own: parsers before and behind, limits, HTTP/2, calls without a server.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { createServer } from 'node:http'
import { afterEach, beforeEach, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { serve } from '@hono/node-server'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import * as onExpress from 'quota-node/express'
import * as onFastify from 'quota-node/fastify'
import * as onHono from 'quota-node/hono'
import { Books, keyOf, newGate } from './books.mjs'
import { INPUT } from './upstream.mjs'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'dear', messages: [{ role: 'user', content: 'x' }], max_tokens: 100 }
const ANSWER = { usage: { prompt_tokens: INPUT, completion_tokens: 5 } }

let gate
let headers
const open = []

beforeEach(() => {
  gate = newGate()
  headers = { 'content-type': 'application/json', authorization: `Bearer ${keyOf(gate, 'soft')}` }
})
afterEach(async () => {
  for (const stop of open.splice(0)) await stop()
  assert.deepEqual(gate.unresolved(), [])
  new Books(gate, 'soft').even()
})

async function listening(server) {
  if (!server.listening) await once(server, 'listening')
  open.push(async () => {
    server.closeAllConnections?.()
    server.close()
    await once(server, 'close')
  })
  return `http://127.0.0.1:${server.address().port}`
}

const post = (url, body = BODY) => fetch(url + CHAT, { method: 'POST', headers, body: JSON.stringify(body) })
const used = () => gate.balances(new Books(gate, 'soft').who)[0].used
/** Eleven tokens in and five out of `m`, which is not what was held. */
const paid = '0.000021'

for (const [name, parser, read] of [
  ['none', undefined, (body) => body],
  ['json', express.json(), (body) => body],
  ['text', express.text({ type: '*/*' }), (body) => JSON.parse(body)],
  ['raw', express.raw({ type: '*/*' }), (body) => (assert.ok(Buffer.isBuffer(body)), JSON.parse(body))],
]) {
  test(`Express: a parser before, ${name}, and one behind`, async () => {
    const app = express()
    if (parser) app.use(parser)
    app.use('/api', onExpress.quotaMiddleware({ gate }), express.json())
    let seen
    app.post(`/api${CHAT}`, (req, res) => {
      seen = read(req.body)
      res.json(ANSWER)
    })
    const url = await listening(app.listen(0, '127.0.0.1'))
    const answer = await post(`${url}/api`)
    assert.equal((await answer.json()).usage.prompt_tokens, INPUT)
    assert.deepEqual(seen, { ...BODY, model: 'm', max_tokens: 8 })
    assert.equal(used(), paid)
  })
}

test('Express: wherever it is mounted, routes are found by their whole path', async () => {
  const app = express()
  app.use((req, _res, next) => {
    if (req.url === '/short') req.url = CHAT
    next()
  })
  app.use('/v1', onExpress.quotaMiddleware({ gate }))
  app.post(CHAT, (_req, res) => void res.json(ANSWER))
  const url = await listening(app.listen(0, '127.0.0.1'))
  for (const path of [CHAT, '/short']) {
    assert.equal((await fetch(url + path, { method: 'POST', body: '{}' })).status, 401)
    assert.equal((await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(BODY) })).status, 200)
  }
  assert.equal(used(), '0.000042')
})

test('Express: a body that somebody has read without keeping it', async () => {
  const app = express()
  app.use(async (req, _res, next) => {
    for await (const piece of req) assert.ok(piece)
    next()
  })
  app.use(onExpress.quotaMiddleware({ gate }))
  const answer = await post(await listening(app.listen(0, '127.0.0.1')))
  assert.equal(answer.status, 400)
})

test("Express: nothing but Node's own server is needed", async () => {
  const middleware = onExpress.quotaMiddleware({ gate })
  const server = createServer((req, res) => {
    middleware(req, res, (error) => {
      assert.equal(error, undefined)
      // Headers in each of the forms that Node takes.
      res.writeHead(200, 'fine', ['content-type', 'application/json', 'x-two', '1', 'x-two', '2'])
      res.write(JSON.stringify(ANSWER).slice(0, 10), 'utf8', () => {})
      res.end(JSON.stringify(ANSWER).slice(10))
    })
  })
  const answer = await post(await listening(server.listen(0, '127.0.0.1')))
  assert.deepEqual([answer.statusText, answer.headers.get('x-two')], ['fine', '1, 2'])
  assert.deepEqual(await answer.json(), ANSWER)
  assert.equal(used(), paid)
})

test('Express: an answer is over with the last of the bytes that it announced', async () => {
  const app = express()
  app.use(onExpress.quotaMiddleware({ gate }))
  const text = JSON.stringify(ANSWER)
  let end
  app.post(CHAT, (_req, res) => {
    res.set({ 'content-type': 'application/json', 'content-length': String(text.length) })
    res.write(text.slice(0, 5))
    res.write(text.slice(5))
    end = () => res.end()
  })
  const answer = await post(await listening(app.listen(0, '127.0.0.1')))
  // Who asks does not wait for more.
  await answer.json()
  assert.equal(used(), paid)
  end()
})

test('Express: a handler is told when to wait, and when to go on', async () => {
  const app = express()
  app.use(onExpress.quotaMiddleware({ gate }))
  const written = []
  let goesOn
  app.post(CHAT, async (_req, res) => {
    res.type('text/event-stream')
    for (let time = 0; time < 3; time++) {
      let count = 1
      while (res.write(`: ${'x'.repeat(10_000)}\n\n`) && count < 5000) count++
      written.push(count)
      await once(res, 'drain')
    }
    // What is taken out asks for no wait.
    goesOn = res.write('data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":5}}\n\n', () => res.end())
  })
  const answer = await post(await listening(app.listen(0, '127.0.0.1')), { ...BODY, stream: true })
  assert.doesNotMatch(await answer.text(), /usage/)
  assert.deepEqual([written.length, goesOn], [3, true])
  assert.ok(Math.max(...written) < 100, String(written))
  assert.equal(used(), paid)
})

test('Express: what is no piece of an answer is refused as ever', async () => {
  const app = express()
  app.use(onExpress.quotaMiddleware({ gate }))
  app.post(CHAT, (_req, res) => {
    assert.throws(() => res.write(5), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => res.write(null), { code: 'ERR_STREAM_NULL_VALUES' })
    assert.throws(() => res.end({}), { code: 'ERR_INVALID_ARG_TYPE' })
    res.json(ANSWER)
  })
  const url = await listening(app.listen(0, '127.0.0.1'))
  assert.equal((await post(url)).status, 200)
  assert.equal(used(), paid)
})

test('Express: what the application does beside it is its own', async () => {
  const app = express()
  app.use((req, res, next) => {
    res.set('x-before', '1')
    next()
  })
  app.use(onExpress.quotaMiddleware({ gate }))
  app.post(CHAT, (_req, res) => void res.status(201).json(ANSWER))
  const answer = await post(await listening(app.listen(0, '127.0.0.1')))
  assert.deepEqual([answer.status, answer.headers.get('x-before')], [201, '1'])
  assert.equal(answer.headers.get('content-length'), String((await answer.text()).length))
})

async function fastify(options, { prefix = '', handler = async () => ANSWER, ...route } = {}) {
  const app = Fastify(options)
  await app.register(onFastify.quotaPlugin, { gate })
  app.post(prefix + CHAT, route, handler)
  return app
}

test('Fastify: the limit of the route holds, in the manner of the route', async () => {
  const app = await fastify({}, { bodyLimit: 100 })
  const answer = await app.inject({ method: 'POST', url: CHAT, headers, payload: { ...BODY, user: 'x'.repeat(200) } })
  assert.deepEqual([answer.statusCode, answer.json().error.code], [413, 'body_too_large'])
  await app.close()
})

test('Fastify: injected requests, schemas and prefixes', async () => {
  const schema = { body: { type: 'object', required: ['messages', 'nothing'] } }
  const app = await fastify({}, { prefix: '/api', schema })
  const refused = await app.inject({ method: 'POST', url: `/api${CHAT}`, headers, payload: BODY })
  // The application's own word: it was not run, and costs nothing.
  assert.deepEqual([refused.statusCode, used()], [400, '0'])
  const made = await app.inject({ method: 'POST', url: `/api${CHAT}`, headers, payload: { ...BODY, nothing: 1 } })
  assert.deepEqual([made.statusCode, made.json(), used()], [200, ANSWER, paid])
  await app.close()
})

test('Fastify: a handler that answers on the raw response', async () => {
  const app = await fastify({}, {
    handler: (_request, reply) => {
      reply.hijack()
      reply.raw.setHeader('content-type', 'application/json')
      reply.raw.end(JSON.stringify(ANSWER))
    },
  })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  assert.deepEqual(await (await post(url)).json(), ANSWER)
  assert.equal(used(), paid)
  await app.close()
})

test('Fastify: HTTP/2', async () => {
  const app = await fastify({ http2: true }, {
    handler: async (request, reply) => {
      assert.deepEqual(request.body, { ...BODY, model: 'm', max_tokens: 8 })
      return reply.send(ANSWER)
    },
  })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const session = connectHttp2(url)
  const ask = async (body, more) => {
    const stream = session.request({ ':method': 'POST', ':path': CHAT, ...headers, ...more })
    stream.end(body)
    const [told] = await once(stream, 'response')
    let text = ''
    for await (const piece of stream.setEncoding('utf8')) text += piece
    return { status: told[':status'], told, body: JSON.parse(text) }
  }
  const made = await ask(JSON.stringify(BODY))
  assert.deepEqual([made.status, made.body, used()], [200, ANSWER, paid])
  assert.ok(made.told['x-request-id'])
  assert.equal((await ask('x')).status, 400)
  assert.equal((await ask(' '.repeat(2 << 20))).status, 413)
  session.close()
  await once(session, 'close')
  await app.close()
})

test('Hono: without a server, mounted, and with the body read before', async () => {
  const app = new Hono()
  app.use(async (c, next) => {
    assert.equal((await c.req.json()).model, 'dear')
    await next()
  })
  const api = new Hono()
  api.use(onHono.quotaMiddleware({ gate }))
  api.post(CHAT, async (c) => {
    assert.deepEqual(await c.req.json(), { ...BODY, model: 'm', max_tokens: 8 })
    assert.equal(c.get('quota').lease.model, 'm')
    c.header('x-mine', '1')
    return c.json(ANSWER, 201)
  })
  app.route('/api', api)
  const answer = await app.request(`/api${CHAT}`, { method: 'POST', headers, body: JSON.stringify(BODY) })
  assert.deepEqual([answer.status, await answer.json()], [201, ANSWER])
  assert.deepEqual([answer.headers.get('x-mine'), answer.headers.has('x-request-id')], ['1', true])
  assert.equal(used(), paid)
})

test('Hono: a stream that announces its length is shorter by what is taken out', async () => {
  const app = new Hono()
  app.use(onHono.quotaMiddleware({ gate }))
  const text = `data: {"choices":[]}\n\ndata: ${JSON.stringify({ choices: [], ...ANSWER })}\n\ndata: [DONE]\n\n`
  const told = { 'content-type': 'text/event-stream', 'content-length': String(text.length) }
  app.post(CHAT, () => new Response(text, { headers: told }))
  const url = await listening(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }))
  const answer = await post(url, { ...BODY, stream: true })
  assert.equal(await answer.text(), 'data: {"choices":[]}\n\ndata: [DONE]\n\n')
  assert.equal(used(), paid)
})

test('Hono: a body in many pieces takes the room of its bytes', async () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc')
  const app = new Hono()
  app.use(onHono.quotaMiddleware({ gate }))
  app.post(CHAT, (c) => c.json(ANSWER))
  const text = Buffer.from(JSON.stringify(BODY) + ' '.repeat(100_000))
  let at = 0
  let taken
  const body = new ReadableStream(
    {
      pull(controller) {
        if (at < text.length) return controller.enqueue(text.subarray(at, ++at))
        gc()
        taken = process.memoryUsage().heapUsed - before
        controller.close()
      },
    },
    { highWaterMark: 0 },
  )
  gc()
  const before = process.memoryUsage().heapUsed
  const answer = await app.request(CHAT, { method: 'POST', headers, body, duplex: 'half' })
  assert.equal(answer.status, 200)
  await answer.text()
  assert.ok(taken < 10 << 20, `${taken} bytes for ${text.length}`)
  assert.equal(used(), paid)
})

test('Hono: an answer without a body, and a request without one', async () => {
  const app = new Hono()
  app.use(onHono.quotaMiddleware({ gate }))
  app.post(CHAT, (c) => c.body(null, 404))
  const asked = { method: 'POST', headers }
  assert.equal((await app.request(CHAT, asked)).status, 400)
  assert.equal((await app.request(CHAT, { ...asked, body: JSON.stringify(BODY) })).status, 404)
  assert.equal(used(), '0')
})
