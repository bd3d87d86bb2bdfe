'use strict'
// The way of a request into a server, from its headers to the call of the handler, whichever host the server is made with.

const { randomUUID } = require('node:crypto')
const { Gate, Principal, Request } = require('../index.cjs')
const { document, isPlain } = require('../text.cjs')
const { Call } = require('./call.cjs')
const { Fault, answerTo } = require('./faults.cjs')
const { agreed, rewrite } = require('./rewrite.cjs')
const { ROUTES, Routes } = require('./routes.cjs')

/** The largest body, in bytes, unless the host says otherwise. */
const MAX_BODY = 10 << 20
/** How long a body may take to arrive. */
const BODY_MS = 60_000
/**
 * How many times too large a body may be and still be read to its end: an answer before that is lost in the reset of the
 * connection that follows.
 */
const MAX_EXCESS = 4

const KEYS = ['authorization', 'x-api-key', 'x-goog-api-key']
const IDEMPOTENCY_KEY = /^[A-Za-z0-9\-_.]{1,64}$/
const RUN_ID = /^[!-~]{1,128}$/

/** The options of a middleware, checked. */
class Door {
  #routes

  constructor({ gate, who, routes = ROUTES, maxBody = MAX_BODY } = {}) {
    if (!(gate instanceof Gate)) throw new TypeError('gate: a Gate is wanted')
    if (who !== undefined && typeof who !== 'function') throw new TypeError('who: a function of the request is wanted')
    if (!Number.isInteger(maxBody) || maxBody < 0) throw new TypeError('maxBody: a whole number of bytes is wanted')
    this.gate = gate
    this.who = who
    this.maxBody = maxBody
    // Ends waits in time, and leases that nobody ends.
    this.keeper = gate.keeper()
    this.#routes = new Routes(routes)
  }

  /** What a request calls; `undefined` where it spends no quota and passes. */
  route(method, path) {
    return method === 'POST' ? this.#routes.of(path) : undefined
  }
}

/** One request, from its headers to the head of its answer. */
class Visit {
  #door
  #header
  #shown

  /** `header` gives a header's value by its name, in small letters. */
  constructor(door, route, header) {
    this.#door = door
    this.#header = header
    this.route = route
    this.id = `req-${randomUUID().replaceAll('-', '')}`
  }

  /**
   * Everything before the handler is called: who asks, the body, the turn, and the body as it was agreed. `asked` is what
   * `who` is called with; `body` reads the bytes, or gives an object that was read before. Where the signal aborts, its
   * reason is thrown, and nothing is held.
   */
  async admitted(asked, body, signal) {
    const { route } = this
    const who = await this.#identify(asked)
    this.#shown = who
    signal.throwIfAborted()
    const given = await body()
    const text = document(given)
    const request = this.#request(text, who)
    if (request.user !== null) this.#shown = who.onBehalfOf(request.user)
    const lease = await this.#door.gate.acquire(who, request, { signal })
    if (lease.isRepeat) {
      // One settlement would pay for many calls.
      const told = 'A request under this idempotency key is in progress; it is not run twice.'
      throw new Fault(409, 'request_in_progress', told, { retry: false })
    }
    const call = new Call(lease, route.shape)
    try {
      signal.throwIfAborted()
      const parsed = JSON.parse(text)
      const { body: made, stripUsage } = rewrite(route.shape, parsed, agreed(lease, request), request.stream)
      const rewritten = JSON.stringify(made)
      // What is not changed stands as it was written, if everybody reads it so.
      const stands = rewritten === JSON.stringify(parsed) && isPlain(text, parsed)
      const bytes = Buffer.from(stands ? text : rewritten)
      if (!call.sent()) throw new Fault(503, 'lease_lost', "The request's reservation ended before it was sent.")
      return { call, stripUsage, parsed: made, quota: { lease, body: bytes }, headers: () => this.#told(lease) }
    } catch (error) {
      call.neverSent()
      throw error
    }
  }

  /** The answer in place of the handler's, to what was thrown. Throws on what is none. */
  answer(error) {
    const { manner } = this.route.shape
    const { status, headers, body } = answerTo(error, manner)
    const text = JSON.stringify(body)
    const all = { ...this.#limits(), [this.#idHeader]: this.id, ...headers, 'content-type': 'application/json' }
    return { status, headers: all, text }
  }

  async #identify(asked) {
    const { gate, who } = this.#door
    if (!who) return gate.authenticate(KEYS.map(this.#header).find((value) => value !== undefined) ?? '')
    const principal = await who(asked)
    if (!(principal instanceof Principal)) throw new TypeError('who: it gave no Principal')
    return principal
  }

  #request(text, who) {
    const { shape, addressed } = this.route
    const options = { ...addressed, id: this.#requestId(who), runId: this.#runId() }
    return Request.fromBody(shape.dialect, text, options)
  }

  #requestId(who) {
    const key = this.#header('idempotency-key')
    if (key === undefined) return this.id
    if (!IDEMPOTENCY_KEY.test(key)) {
      const told = 'idempotency-key: allowed: 1 to 64 of A-Z, a-z, 0-9, `-`, `_`, `.`.'
      throw new Fault(400, 'request_invalid', told)
    }
    // No colon in the key: the last one ends the tenant, so that no two tenants' ids are the same.
    const id = `${who.tenant}:${key}`
    // A name of a tenant may be of letters that a header can't carry.
    this.id = id.toWellFormed().replace(/[^ -~]/gu, encodeURIComponent)
    return id
  }

  #runId() {
    const run = this.#header('x-agent-run-id')
    if (run !== undefined && !RUN_ID.test(run)) {
      const told = 'x-agent-run-id: allowed: 1 to 128 printable characters without a space.'
      throw new Fault(400, 'request_invalid', told)
    }
    return run
  }

  #told(lease) {
    const told = { ...this.#limits(), [this.#idHeader]: this.id }
    if (lease.waitedMs > 0) told['x-quota-waited-ms'] = String(lease.waitedMs)
    const lesser = lease.degradation
    if (lesser) told['x-quota-degraded'] = `${lesser.step};${lesser.reason}`
    return told
  }

  #limits() {
    const who = this.#shown
    if (!who) return {}
    const { gate } = this.#door
    const { manner } = this.route.shape
    const standard = gate.headers(who, 'ietf')
    // Google's clients know no headers of their own for limits.
    return manner === 'gemini' ? standard : { ...gate.headers(who, manner), ...standard }
  }

  get #idHeader() {
    return this.route.shape.manner === 'anthropic' ? 'request-id' : 'x-request-id'
  }
}

/**
 * Takes the pieces of a body up to a bound. `length` is what its header says, if it says so.
 */
class Body {
  #bytes = Buffer.alloc(0)
  #found = 0

  constructor(most, { length, encoding }) {
    if ((encoding ?? 'identity') !== 'identity') {
      throw new Fault(415, 'body_encoded', 'The body is compressed; allowed: identity.')
    }
    this.most = most
    this.length = /^\d+$/.test(length ?? '') ? Number(length) : undefined
  }

  /** Whether it is so large that it is not read to its end. */
  get isExcessive() {
    return Math.max(this.#found, this.length ?? 0) > this.most * MAX_EXCESS
  }

  add(piece) {
    const start = this.#found
    this.#found += piece.length
    if (this.#found > this.most) {
      this.#bytes = Buffer.alloc(0)
      return
    }
    // Not a list of pieces: they may be of one byte each.
    if (this.#found > this.#bytes.length) {
      const grown = Buffer.alloc(Math.min(this.most, Math.max(this.#found, 2 * this.#bytes.length)))
      this.#bytes.copy(grown, 0, 0, start)
      this.#bytes = grown
    }
    this.#bytes.set(piece, start)
  }

  whole() {
    const found = Math.max(this.#found, this.length ?? 0)
    if (found > this.most) {
      throw new Fault(413, 'body_too_large', `The body is too large: ${found} bytes; allowed: ${this.most}.`)
    }
    return this.#bytes.subarray(0, this.#found)
  }

  static late() {
    return new Fault(408, 'body_late', `The body took over ${BODY_MS / 1000} s.`)
  }
}

module.exports = { Door, Visit, Body, BODY_MS }
