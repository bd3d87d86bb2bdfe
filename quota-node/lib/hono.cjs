'use strict'
// A middleware for Hono 4.

const { ROUTES } = require('./wrappers/routes.cjs')
const { Door, Visit, Body, BODY_MS } = require('./wrappers/door.cjs')
const { metered } = require('./wrappers/web.cjs')

function quotaMiddleware(options) {
  const door = new Door(options)
  return async (c, next) => {
    const route = door.route(c.req.method, c.req.path)
    if (!route) return next()
    const { raw } = c.req
    const { signal } = raw
    const visit = new Visit(door, route, (name) => raw.headers.get(name) ?? undefined)
    // A middleware before this one may have read it.
    const body = async () => (raw.bodyUsed ? Buffer.from(await c.req.arrayBuffer()) : read(raw, door.maxBody))
    let admitted
    try {
      admitted = await visit.admitted(c, body, signal)
    } catch (error) {
      // Nobody is there to be answered.
      if (signal.aborted) return new Response(null, { status: 499 })
      const { status, headers, text } = visit.answer(error)
      return new Response(text, { status, headers })
    }
    const { call, quota, stripUsage } = admitted
    c.req.raw = handedOn(raw, quota, route)
    // What was read before is not what was agreed.
    c.req.bodyCache = {}
    c.set('quota', quota)
    let passage
    // Who leaves before there is an answer cancels none.
    const leave = () => (passage ? passage.broke(true) : call.dropped())
    signal.addEventListener('abort', leave, { once: true })
    try {
      await next()
    } catch (error) {
      call.failed()
      throw error
    }
    const answer = metered(c.res, call, { stripUsage, headers: admitted.headers() })
    passage = answer.passage
    // Of two answers Hono keeps the headers of the first beside those of the second.
    c.res = undefined
    c.res = answer.response
  }
}

/** The request with the body as it is now. Answers that are not compressed can be read as they pass. */
function handedOn(raw, { lease, body }, route) {
  const headers = new Headers(raw.headers)
  headers.delete('transfer-encoding')
  headers.set('content-length', String(body.length))
  headers.set('accept-encoding', 'identity')
  const { method, signal } = raw
  return new Request(route.readdressed(raw.url, lease.upstreamModel), { method, headers, body, signal })
}

/** The whole body, if it is not too large and comes in time. */
async function read(raw, most) {
  const header = (name) => raw.headers.get(name) ?? undefined
  const body = new Body(most, { length: header('content-length'), encoding: header('content-encoding') })
  if (body.isExcessive || raw.body === null) return body.whole()
  const reader = raw.body.getReader()
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Body.late()), BODY_MS)
  })
  const all = async () => {
    while (!body.isExcessive) {
      const { done, value } = await reader.read()
      if (done) break
      body.add(value)
    }
    return body.whole()
  }
  try {
    // Once, and not for each piece: what races with a promise is kept until that is settled.
    return await Promise.race([all(), late])
  } finally {
    clearTimeout(timer)
    reader.releaseLock()
  }
}

module.exports = { ROUTES, quotaMiddleware }
