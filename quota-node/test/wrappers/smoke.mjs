import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import { serve } from '@hono/node-server'
import { Readable } from 'node:stream'
import { once } from 'node:events'
import * as E from 'quota-node/express'
import * as F from 'quota-node/fastify'
import * as H from 'quota-node/hono'
import { Upstream } from './upstream.mjs'
import { newGate, keyOf, Books } from './books.mjs'
const up = await Upstream.start()
const forward = (path, body) => fetch(up.url + path, { method: 'POST', headers: {'content-type':'application/json'}, body: JSON.stringify(body) })
async function drive(name, gate, url) {
  const books = new Books(gate)
  for (const stream of [false, true]) {
    const r = await fetch(url + '/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${keyOf(gate)}` }, body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hi' }], stream }) })
    const t = await r.text()
    console.log(name, r.status, r.headers.get('x-ratelimit-limit-requests'), r.headers.get('x-request-id'), t.length, /usage/.test(t), up.calls.at(-1)?.body)
  }
  console.log(books.inFlight, books.charged, books.unresolved)
  const r = await fetch(url + '/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{' })
  console.log(r.status, await r.text())
  const r2 = await fetch(url + '/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': keyOf(gate) }, body: '{' })
  console.log(r2.status, await r2.text())
}
{ const gate = newGate(); const app = express(); app.use(E.quotaMiddleware({ gate })); app.post('/v1/chat/completions', async (req, res) => {
  const r = await forward(req.path, req.body); res.writeHead(r.status, { 'content-type': r.headers.get('content-type') }); Readable.fromWeb(r.body).pipe(res) })
  const s = app.listen(0, '127.0.0.1'); await once(s, 'listening'); await drive('express', gate, `http://127.0.0.1:${s.address().port}`); s.close(); s.closeAllConnections() }
{ const gate = newGate(); const app = Fastify(); app.register(F.quotaPlugin, { gate }); app.post('/v1/chat/completions', async (req, reply) => {
  const r = await forward(req.url, req.body); reply.code(r.status).header('content-type', r.headers.get('content-type')); return reply.send(Readable.fromWeb(r.body)) })
  await app.listen({ port: 0, host: '127.0.0.1' }); await drive('fastify', gate, `http://127.0.0.1:${app.server.address().port}`); await app.close() }
{ const gate = newGate(); const app = new Hono(); app.use(H.quotaMiddleware({ gate })); app.post('/v1/chat/completions', async (c) => {
  const r = await forward(c.req.path, await c.req.json()); return new Response(r.body, { status: r.status, headers: { 'content-type': r.headers.get('content-type') } }) })
  const s = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }); await once(s, 'listening'); await drive('hono', gate, `http://127.0.0.1:${s.address().port}`); s.close(); s.closeAllConnections() }
await up.stop()
