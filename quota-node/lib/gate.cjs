'use strict'
// The gate: what options and objects become before the addon is asked.

const native = require('./native.cjs')
const { Decision } = require('./decision.cjs')
const { Receipt, dispose } = require('./lease.cjs')
const { outcome } = require('./usage.cjs')
const { object } = require('./text.cjs')
const host = require('./host.cjs')
const { limited } = require('./waiting.cjs')

const OWN_POOLS = [native.FixedPool, native.ReportedPool, native.SimulatedPool]

class Gate extends native.Gate {
  #admit
  // What the host has plugged in, and keepers, which sweep until they are stopped.
  #kept

  constructor(policy, { clock, pools, journal, estimator, maxRows, maxOpenLeases } = {}) {
    if (!(policy instanceof native.Policy)) throw new TypeError('Gate: a Policy is wanted')
    const [parts, kept] = [new native._Parts(policy), new Set()]
    if (maxRows !== undefined || maxOpenLeases !== undefined) parts.bounds(maxRows, maxOpenLeases)
    if (clock) parts.clock(clock)
    if (journal) host.journal(parts, kept, journal)
    if (estimator) host.estimator(parts, kept, estimator)
    for (const [name, pool] of Object.entries(pools ?? {})) {
      if (OWN_POOLS.some((type) => pool instanceof type)) parts.pool(name, pool)
      else host.pool(parts, kept, native._LastLoad, name, pool)
    }
    super(parts)
    this.#kept = kept
    this.#admit = native._guardedCall(this._admitting(), 'admit')
  }

  admit(who, request) {
    return new Decision(this.#admit(who, request), this, who, request)
  }

  async acquire(who, request, { signal, timeoutMs } = {}) {
    signal?.throwIfAborted()
    limited(timeoutMs)
    const decision = this.admit(who, request)
    // What need not wait takes no second promise.
    return decision.lease ?? decision.wait({ signal, timeoutMs })
  }

  async run(who, request, send, { signal, timeoutMs, dialect } = {}) {
    const lease = await this.acquire(who, request, { signal, timeoutMs })
    return lease.run(send, { dialect })
  }

  preview(who, request) {
    const found = this._preview(who, request)
    return { ...found, retryAfterMs: found.refusal?.retryAfterMs ?? null }
  }

  finalize(given, { requestId, leaseId, dialect } = {}) {
    return new Receipt(undefined, undefined, this._finalize(outcome(given, dialect), requestId, leaseId))
  }

  principalFromClaims(claims) {
    return this._principalFromClaims(object(claims))
  }

  issueKey({ limits, ...options }) {
    const text = limits == null || typeof limits === 'string' ? limits : object(limits)
    return this._issueKey({ ...options, limits: text })
  }

  balances(who, { runId, operator } = {}) {
    return this._balances(who, runId, operator)
  }

  headers(who, manner) {
    return Object.fromEntries(this._headers(who, manner))
  }

  explain(requestId) {
    return JSON.parse(this._explain(requestId))
  }

  recent(tenant, { lastMs }) {
    return JSON.parse(this._recent(tenant, lastMs))
  }

  journal({ after } = {}) {
    return JSON.parse(this._journal(after))
  }

  onAlert(told) {
    if (typeof told !== 'function') throw new TypeError(`a function is told of alerts, not ${typeof told}`)
    const tell = host.told(told)
    const lent = host.lent(this.#kept, tell)
    const subscription = this._onAlert(lent, lent)
    letGo.set(subscription, () => this.#kept.delete(tell))
    return subscription
  }

  snapshot() {
    return JSON.parse(this._snapshot())
  }

  report(pool, replica, load, { amend } = {}) {
    return this._report(pool, replica, load, amend)
  }

  keeper({ intervalMs } = {}) {
    const keeper = this._keeper(intervalMs)
    this.#kept.add(keeper)
    letGo.set(keeper, () => this.#kept.delete(keeper))
    return keeper
  }
}

/** What happens beside as a keeper or a subscription stops. For as long as somebody has one it has its gate by this. */
const letGo = new WeakMap()

for (const type of [native.Keeper, native.Subscription]) {
  const { stop } = type.prototype
  type.prototype.stop = function () {
    letGo.get(this)?.()
    return stop.call(this)
  }
  type.prototype[dispose] = function () {
    this.stop()
  }
}

module.exports = { Gate }
