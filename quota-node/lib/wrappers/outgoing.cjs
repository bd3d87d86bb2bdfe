'use strict'
// Calls of upstreams over `fetch` with a gate before them.

const { Gate, Outcome, Principal, Request } = require('../index.cjs')
const { document } = require('../text.cjs')
const { Call } = require('./call.cjs')
const { Fault, answerTo } = require('./faults.cjs')
const { agreed, rewrite } = require('./rewrite.cjs')
const { Routes, among } = require('./routes.cjs')
const { metered } = require('./web.cjs')

/** On which terms calls are made. */
class Terms {
  #routes
  #isUnmetered
  #who

  constructor({ gate, who, unmetered = [] } = {}, { routes, free }) {
    if (!(gate instanceof Gate)) throw new TypeError('gate: a Gate is wanted')
    if (!(who instanceof Principal) && typeof who !== 'function') {
      throw new TypeError('who: a Principal, or a function that gives one, is wanted')
    }
    if (!Array.isArray(unmetered)) throw new TypeError('unmetered: a list of ends of addresses is wanted')
    this.gate = gate
    this.#who = who
    this.#routes = new Routes(routes)
    this.#isUnmetered = among([...free, ...unmetered])
    this.known = Object.keys(routes).join(', ')
  }

  /** The principal of the call that is made now. */
  async who() {
    const who = typeof this.#who === 'function' ? await this.#who() : this.#who
    if (!(who instanceof Principal)) throw new TypeError('who: it gave no Principal')
    return who
  }

  route(path) {
    return this.#routes.of(path)
  }

  isUnmetered(path) {
    return this.#isUnmetered(path)
  }
}

/** The same function, which asks the gate before a POST leaves. */
function throughGate(fetch, terms) {
  return async (input, init = {}) => {
    const asked = typeof input === 'object' && 'method' in input ? input : undefined
    const method = (init.method ?? asked?.method ?? 'GET').toUpperCase()
    const { pathname } = new URL(asked?.url ?? String(input))
    if (method !== 'POST' || terms.isUnmetered(pathname)) return fetch(input, init)
    const route = terms.route(pathname)
    if (!route) return answer(notMetered(pathname, terms.known), 'openai')
    const signal = init.signal ?? asked?.signal
    signal?.throwIfAborted()
    const body = init.body !== undefined ? new Response(init.body) : asked
    let call
    let sent
    try {
      const text = document(body ? new Uint8Array(await body.arrayBuffer()) : '')
      const request = Request.fromBody(route.shape.dialect, text, route.addressed)
      const lease = await terms.gate.acquire(await terms.who(), request, { signal: signal ?? undefined })
      call = new Call(lease, route.shape)
      sent = rewritten(route, JSON.parse(text), lease, request)
      signal?.throwIfAborted()
      if (!call.sent()) throw new Fault(503, 'lease_lost', "The request's reservation ended before it was sent.")
    } catch (error) {
      call?.neverSent()
      if (signal?.aborted) throw error
      return answer(error, route.shape.manner)
    }
    const headers = new Headers(init.headers ?? asked?.headers)
    headers.delete('content-length')
    const kept = asked ? { redirect: asked.redirect, signal } : {}
    const made = { ...kept, ...init, method, headers, body: sent.body }
    const url = route.readdressed(asked?.url ?? String(input), call.lease.upstreamModel)
    const response = await answered(call, signal, () => fetch(url, made))
    // `fetch` has undone what an upstream compressed.
    const told = metered(response, call, { stripUsage: sent.stripUsage, encoding: 'identity', signal })
    for (const name of ['url', 'redirected']) Object.defineProperty(told.response, name, { value: response[name] })
    return told.response
  }
}

/** The body as it was agreed. */
function rewritten(route, asked, lease, request) {
  const { body, stripUsage } = rewrite(route.shape, asked, agreed(lease, request), request.stream)
  return { body: JSON.stringify(body), stripUsage }
}

/** The head of the upstream's answer; where none comes, the lease ends by why. */
async function answered(call, signal, send) {
  try {
    return await send()
  } catch (error) {
    if (neverConnected(error)) call.finish(Outcome.notRun())
    else if (signal?.aborted) call.dropped()
    else call.failed()
    throw error
  }
}

/** Whether no byte of a request can have left. */
function neverConnected(error) {
  const cause = error?.cause
  const causes = cause?.errors ?? [cause]
  return causes.every((one) => ['connect', 'getaddrinfo'].includes(one?.syscall) || one?.code === 'UND_ERR_CONNECT_TIMEOUT')
}

function notMetered(path, known) {
  const told = `POST ${path} can't be metered; metered are ${known}. List it in \`unmetered\` to let it pass.`
  return new Fault(400, 'call_not_metered', told, { retry: false })
}

/** The answer in place of the upstream's, to what was thrown. Throws on what is none. */
function answer(error, manner) {
  const { status, headers, body } = answerTo(error, manner)
  return new Response(JSON.stringify(body), { status, headers: { ...headers, 'content-type': 'application/json' } })
}

const clients = new WeakSet()

/** A copy of an SDK's client whose calls go through the gate, its helpers' too: all of them are made with its `fetch`. */
function wrapped(client, terms) {
  if (typeof client?.withOptions !== 'function' || typeof client.fetch !== 'function') {
    throw new TypeError('client: a client of the SDK is wanted, with `withOptions` and `fetch`')
  }
  if (clients.has(client)) throw new TypeError('client: it is wrapped already')
  const made = client.withOptions({ fetch: throughGate(client.fetch, terms) })
  // Whatever it is given, another `fetch` too, it is made from the client as it was.
  made.withOptions = (options) => wrapped(client.withOptions(options), terms)
  clients.add(made)
  return made
}

module.exports = { Terms, neverConnected, throughGate, wrapped }
