// What the servers' wrappers allow and refuse. It is compiled, not run.

import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import { Gate, Policy, Principal, type Lease } from 'quota-node'
import * as onExpress from 'quota-node/express'
import * as onFastify from 'quota-node/fastify'
import * as onHono from 'quota-node/hono'

const gate = new Gate(Policy.fromFile('policy.yaml'))
const acme = new Principal({ tenant: 'acme' })

const app = express()
app.use(onExpress.quotaMiddleware({ gate, who: (req) => (req.get('x-user') ? acme : acme), maxBody: 1 << 20 }))
app.post('/v1/chat/completions', (req, res) => {
  const lease: Lease | undefined = req.quota?.lease
  const body: Uint8Array | undefined = req.quota?.body
  // @ts-expect-error: other requests have none
  req.quota.lease
  res.json({ lease: lease?.id, body: body?.length })
})
onExpress.quotaMiddleware({ gate, routes: { ...onExpress.ROUTES, '/chat': 'openai_chat' } })
// @ts-expect-error: no such dialect
onExpress.quotaMiddleware({ gate, routes: { '/chat': 'openai' } })
// @ts-expect-error: a gate is wanted
onExpress.quotaMiddleware({})
// @ts-expect-error: a principal is wanted
onExpress.quotaMiddleware({ gate, who: () => 'acme' })

const fastify = Fastify()
await fastify.register(onFastify.quotaPlugin, { gate, who: async (request) => (request.ip ? acme : acme) })
// @ts-expect-error: a gate is wanted
await fastify.register(onFastify.quotaPlugin, {})
fastify.post('/v1/chat/completions', async (request) => {
  // @ts-expect-error: other requests have none
  request.quota.lease
  return { lease: request.quota?.lease.id }
})

const hono = new Hono<onHono.QuotaEnv>()
hono.use(onHono.quotaMiddleware({ gate, who: (c) => (c.req.header('x-user') ? acme : acme) }))
hono.post('/v1/chat/completions', (c) => {
  const lease: Lease | undefined = c.get('quota')?.lease
  // @ts-expect-error: other requests have none
  c.get('quota').lease
  return c.json({ lease: lease?.id })
})
new Hono().post('/x', onHono.quotaMiddleware({ gate }), (c) => c.json({ lease: c.get('quota')?.lease.id ?? null }))
