'use strict'
// The gate's answer.

const { Refusal, _Degraded: Degraded } = require('./native.cjs')
const { Refused } = require('./errors.cjs')
const { Receipt, leaseOf } = require('./lease.cjs')
const { document } = require('./text.cjs')
const { show, extend } = require('./shown.cjs')
const { wait, limited } = require('./waiting.cjs')

class RefusalMethods {
  toObject() {
    return JSON.parse(this._toText())
  }

  get receipt() {
    const data = this._receipt()
    return data && new Receipt(undefined, undefined, data)
  }

  response(manner) {
    const { status, headers, body } = this._response(manner)
    return { status, headers: Object.fromEntries(headers), body: JSON.parse(body) }
  }
}

extend(Refusal, RefusalMethods)
Refusal.fromObject = (data) => Refusal._fromText(document(data))
show(Refusal)

class Decision {
  #waits
  #asked

  constructor(decided, gate, who, request) {
    this.action = 'allow'
    this.reason = null
    this.lease = null
    this.refusal = null
    this.degradation = null
    if (typeof decided === 'number') {
      this.lease = leaseOf(decided, gate)
    } else if (decided instanceof Refusal) {
      this.action = 'reject'
      this.refusal = decided
      this.reason = decided.reason
    } else if (decided instanceof Degraded) {
      this.action = 'degrade'
      this.degradation = decided.degradation
      this.reason = this.degradation.reason
      this.lease = leaseOf(decided.take(), gate)
    } else {
      this.action = 'queue'
      this.refusal = decided.refusal
      this.reason = decided.reason
      this.#waits = decided
      this.#asked = [gate, who, request]
    }
  }

  get retryAfterMs() {
    return this.refusal?.retryAfterMs ?? null
  }

  get lane() {
    return this.#waits?.lane ?? null
  }

  get pool() {
    return this.#waits?.pool ?? null
  }

  get maxWaitMs() {
    return this.#waits?.maxWaitMs ?? null
  }

  get isDue() {
    return this.#waits?.isDue ?? true
  }

  again() {
    return this.#waits ? new Decision(this.#waits.again(...this.#asked), ...this.#asked) : this
  }

  leave() {
    this.#waits?.leave()
  }

  granted() {
    if (this.lease) return this.lease
    throw refused(this.refusal)
  }

  async wait(options) {
    limited(options?.timeoutMs)
    if (this.action !== 'queue') return this.granted()
    let decision = this
    const due = () => decision.#waits.due()
    const leave = () => decision.leave()
    const next = () => {
      decision = decision.again()
      return decision.action === 'queue' ? undefined : decision.granted()
    }
    return wait({ due, leave, next }, options)
  }
}

/** What is thrown for a refusal. */
function refused(refusal) {
  const error = new Refused(refusal.message, { code: refusal.reason, isRetryable: refusal._isRetryable })
  Object.defineProperty(error, 'refusal', { value: refusal, enumerable: false })
  return error
}

module.exports = { Decision, Refusal }
