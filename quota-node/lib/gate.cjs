'use strict'
// The gate: what options and objects become before the addon is asked.

const native = require('./native.cjs')
const { Decision } = require('./decision.cjs')
const { Receipt, dispose } = require('./lease.cjs')
const { outcome } = require('./usage.cjs')
const { object } = require('./text.cjs')

class Gate extends native.Gate {
  constructor(policy, { clock, pools, maxRows, maxOpenLeases } = {}) {
    const parts = new native._Parts(policy)
    if (maxRows !== undefined || maxOpenLeases !== undefined) parts.bounds(maxRows, maxOpenLeases)
    if (clock) parts.clock(clock)
    for (const [name, pool] of Object.entries(pools ?? {})) parts.pool(name, pool)
    super(parts)
  }

  admit(who, request) {
    return new Decision(this._admit(who, request), this, who, request)
  }

  async acquire(who, request, { signal, timeoutMs } = {}) {
    signal?.throwIfAborted()
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

  report(pool, replica, load, { amend } = {}) {
    return this._report(pool, replica, load, amend)
  }

  keeper({ intervalMs } = {}) {
    return this._keeper(intervalMs)
  }
}

native.Keeper.prototype[dispose] = native.Keeper.prototype.stop

module.exports = { Gate, Keeper: native.Keeper }
