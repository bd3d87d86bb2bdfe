// The same application in each of the hosts: it forwards what it is asked to an upstream, or does as `x-how` says.

import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { serve } from '@hono/node-server'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import * as onExpress from 'quota-node/express'
import * as onFastify from 'quota-node/fastify'
import * as onHono from 'quota-node/hono'

const ADDRESSES = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/responses',
  '/v1/embeddings',
  '/v1/messages',
  '/v1beta/models/:call',
  '/v1/other',
]

class Missing extends Error {
  status = 404
  statusCode = 404
}

/** Answers with a `Response`. */
async function answer(upstream, { how, path, body, quota, signal, headers }) {
  const events = { 'content-type': 'text/event-stream' }
  switch (how) {
    case 'raise':
      throw new Error('the application failed')
    case 'raise-404':
      throw new Missing('no such thing')
    case 'text':
      return new Response('not json')
    case 'echo':
      return Response.json({ body, text: quota && Buffer.from(quota.body).toString(), headers, path })
    case 'settle':
      quota.lease.settle({ prompt_tokens: 3, completion_tokens: 2 })
      return Response.json({})
    case 'cancelled':
      quota.lease.unresolved('upstream_failed')
      return new Response('data: {}\n\n', { headers: events })
  }
  const asked = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal }
  // What the upstream is asked for is not undone by `fetch`, so that it can be compressed all the same.
  const found = await fetch(upstream.url + path, asked)
  const told = Object.fromEntries(['content-type', 'retry-after'].map((name) => [name, found.headers.get(name)]))
  const kept = Object.fromEntries(Object.entries(told).filter(([, value]) => value !== null))
  if (how !== 'meter') return new Response(found.body, { status: found.status, headers: kept })
  async function* pieces() {
    // With the head on its way already.
    yield* quota.lease.stream('openai_chat').pipe(found.body)
  }
  return new Response(Readable.toWeb(Readable.from(pieces())), { headers: events })
}

/** Aborts when the other side has left before the end. */
function gone(res) {
  const controller = new AbortController()
  res.on('close', () => !res.writableFinished && controller.abort())
  return controller.signal
}

async function start(server) {
  if (!server.listening) await once(server, 'listening')
  const stop = async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }
  return { url: `http://127.0.0.1:${server.address().port}`, stop }
}

function onNode(app) {
  return start(app.listen(0, '127.0.0.1'))
}

export const HOSTS = {
  async express(upstream, options, { before = [] } = {}) {
    const app = express()
    app.use(...before, onExpress.quotaMiddleware(options))
    app.get('/v1/chat/completions', (_req, res) => void res.send('looked'))
    for (const address of ADDRESSES) {
      app.post(address, async (req, res) => {
        const { path, body, quota, headers } = req
        const found = await answer(upstream, { how: headers['x-how'], path, body, quota, signal: gone(res), headers })
        res.status(found.status).set(Object.fromEntries(found.headers))
        if (found.headers.get('content-type')?.startsWith('text/event-stream')) {
          // An asker who leaves ends it, too.
          res.flushHeaders()
          await pipeline(Readable.fromWeb(found.body), res).catch(() => res.destroy())
        } else res.end(Buffer.from(await found.arrayBuffer()))
      })
    }
    // Express prints what is thrown.
    app.use((error, _req, res, _next) => void res.status(error.status ?? 500).json({ error: error.message }))
    return onNode(app)
  },

  async fastify(upstream, options) {
    const app = Fastify({ routerOptions: { ignoreDuplicateSlashes: true, ignoreTrailingSlash: true, caseSensitive: false } })
    await app.register(onFastify.quotaPlugin, options)
    app.get('/v1/chat/completions', async () => 'looked')
    for (const address of ADDRESSES) {
      app.post(address, async (request, reply) => {
        const { body, quota, headers } = request
        const path = request.raw.url.split('?')[0]
        const signal = gone(reply.raw)
        return answer(upstream, { how: headers['x-how'], path, body, quota, signal, headers })
      })
    }
    await app.listen({ port: 0, host: '127.0.0.1' })
    return { url: `http://127.0.0.1:${app.server.address().port}`, stop: () => (app.server.closeAllConnections(), app.close()) }
  },

  async hono(upstream, options) {
    const app = new Hono({ strict: false })
    app.use(onHono.quotaMiddleware(options))
    app.get('/v1/chat/completions', (c) => c.text('looked'))
    for (const address of ADDRESSES) {
      app.post(address, async (c) => {
        const headers = c.req.header()
        const { pathname } = new URL(c.req.raw.url)
        const { signal } = c.req.raw
        const body = await c.req.json()
        return answer(upstream, { how: headers['x-how'], path: pathname, body, quota: c.get('quota'), signal, headers })
      })
    }
    app.onError((error, c) => c.json({ error: error.message }, error.status ?? 500))
    return start(serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }))
  },
}
