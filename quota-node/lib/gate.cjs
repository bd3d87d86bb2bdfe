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

  constructor(policy, { clock, pools, journal, estimator, maxRows, maxOpenLeases } = {}) {
    if (!(policy instanceof native.Policy)) throw new TypeError('Gate: a Policy is wanted')
    const parts = new native._Parts(policy)
    if (maxRows !== undefined || maxOpenLeases !== undefined) parts.bounds(maxRows, maxOpenLeases)
    if (clock) parts.clock(clock)
    if (journal) host.journal(parts, journal)
    if (estimator) host.estimator(parts, estimator)
    for (const [name, pool] of Object.entries(pools ?? {})) {
      if (OWN_POOLS.some((type) => pool instanceof type)) parts.pool(name, pool)
      else host.pool(parts, native._LastLoad, name, pool)
    }
    super(parts)
    this.#admit = native._guardedCall(this._admitting(), 'admit')
  }

  admit(who, request) {
    return new Decision(this.#admit(who, request), this, who, request)
  }

  async acquire(who, request, { signal, timeoutMs } = {}) {
    signal?.throwIfAborted()
    limited(timeoutMs)
    return this.admit(who, request).wait({ signal, timeoutMs })
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
    return this._onAlert(...host.told(told))
  }

  snapshot() {
    return JSON.parse(this._snapshot())
  }

  report(pool, replica, load, { amend } = {}) {
    return this._report(pool, replica, load, amend)
  }

  keeper({ intervalMs } = {}) {
    return this._keeper(intervalMs)
  }
}

for (const type of [native.Keeper, native.Subscription]) {
  type.prototype[dispose] = function () {
    this.stop()
  }
}

module.exports = { Gate }
