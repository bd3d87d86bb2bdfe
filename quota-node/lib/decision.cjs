'use strict'
// The gate's answer, and waiting for a turn.
//
// A place is given up by whoever stops waiting, however that comes about, and with it a turn that came in the same moment:
// between a turn and the lease there is no point at which anybody can stop.

const { Lease, Refusal, _Degraded: Degraded, _Waits: Waits } = require('./native.cjs')
const { Refused } = require('./errors.cjs')
const { Receipt } = require('./lease.cjs')
const { show, extend } = require('./shown.cjs')

/** The longest that a timer of Node's takes; longer ones fire at once. */
const LONGEST = 2 ** 31 - 1

class RefusalMethods {
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
    if (decided instanceof Lease) {
      this.lease = decided
    } else if (decided instanceof Refusal) {
      this.action = 'reject'
      this.refusal = decided
      this.reason = decided.reason
    } else if (decided instanceof Degraded) {
      this.action = 'degrade'
      this.degradation = decided.degradation
      this.reason = this.degradation.reason
      this.lease = decided.take()
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
    const { refusal } = this
    throw refused(refusal)
  }

  async wait({ signal, timeoutMs } = {}) {
    if (this.action !== 'queue') return this.granted()
    let decision = this
    let stopped
    // Leaving a place ends its wait, so that the loop below sees why.
    const stop = (why) => {
      stopped ??= { why }
      decision.leave()
    }
    const abort = () => stop(signal.reason)
    const timer = timeoutMs === undefined ? undefined : setTimeout(stop, limited(timeoutMs), timedOut(timeoutMs))
    signal?.addEventListener('abort', abort, { once: true })
    try {
      if (signal?.aborted) abort()
      while (decision.action === 'queue') {
        await decision.#waits.due()
        if (stopped) throw stopped.why
        decision = decision.again()
      }
      return decision.granted()
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
      decision.leave()
    }
  }
}

/** What is thrown for a refusal. */
function refused(refusal) {
  const error = new Refused(refusal.message, { code: refusal.reason, isRetryable: refusal._isRetryable })
  Object.defineProperty(error, 'refusal', { value: refusal, enumerable: false })
  return error
}

function limited(timeoutMs) {
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0)) throw new TypeError('timeoutMs is a number from 0 on')
  return Math.min(timeoutMs, LONGEST)
}

function timedOut(timeoutMs) {
  return new DOMException(`no turn within ${timeoutMs} ms`, 'TimeoutError')
}

module.exports = { Decision, Refusal }
