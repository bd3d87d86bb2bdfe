'use strict'
// The lease, its stream, and the receipt of its ending.

const { Lease, _Stream: Meter } = require('./native.cjs')
const { UsageError, QuotaError } = require('./errors.cjs')
const { Outcome, usage, outcome } = require('./usage.cjs')
const { show, extend } = require('./shown.cjs')

// Node 20 has these symbols; whoever lacks them has no `using` either.
const { dispose = Symbol('dispose'), asyncDispose = Symbol('asyncDispose') } = Symbol

/** What finalizing did. Its figures are looked up when the first of them is asked for. */
class Receipt {
  #lease
  #number
  #data

  // Of a lease and the number of its ending, or of the figures themselves.
  constructor(lease, number, data) {
    this.#lease = lease
    this.#number = number
    this.#data = data
  }

  get #all() {
    if (!this.#data) {
      const first = this.#lease._receipt(this.#number >> 1)
      this.#data = { ...first, repeat: (this.#number & 1) === 1 }
      this.#lease = undefined
    }
    return this.#data
  }

  get leaseId() {
    return this.#all.leaseId
  }

  get requestId() {
    return this.#all.requestId
  }

  get outcome() {
    return this.#all.outcome
  }

  get usage() {
    return this.#all.usage
  }

  get costUsd() {
    return this.#all.costUsd
  }

  get held() {
    return this.#all.held
  }

  get charged() {
    return this.#all.charged
  }

  get returned() {
    return this.#all.returned
  }

  get overrun() {
    return this.#all.overrun
  }

  get late() {
    return this.#all.late
  }

  get repeat() {
    return this.#all.repeat
  }
}

/** The meter of a streamed answer. */
class Stream {
  #lease
  #meter
  #tail = Buffer.alloc(0)

  constructor(lease, meter) {
    this.#lease = lease
    this.#meter = meter
  }

  get lease() {
    return this.#lease
  }

  feed(chunk) {
    // Mostly all of it passes, unchanged.
    return this.#meter.feed(chunk) ?? chunk
  }

  keep() {
    this.#meter.keep()
  }

  get outputSoFar() {
    return this.#meter.outputSoFar
  }

  finish() {
    const tail = this.#meter.finish()
    if (tail.length > 0) this.#tail = tail
    return this.receipt
  }

  get tail() {
    return this.#tail
  }

  get receipt() {
    const ended = this.#meter.ended
    return ended === null ? null : new Receipt(this.#lease, ended)
  }

  /** The bytes of `source` that go on to the asker; it is finished with the source, whichever way that ends. */
  async *pipe(source) {
    try {
      for await (const chunk of source) {
        const passed = this.feed(chunk)
        this.keep()
        if (passed.length > 0) yield passed
      }
      this.finish()
      if (this.#tail.length > 0) yield this.#tail
    } finally {
      this[dispose]()
    }
  }

  [dispose]() {
    this.#lease[dispose]()
  }

  async [asyncDispose]() {
    this.#lease[dispose]()
  }
}

/** The HTTP status of an error of a provider's client, where it has one. */
function statusOf(error) {
  const status = error?.status
  return Number.isInteger(status) && status >= 100 && status <= 599 ? status : undefined
}

/** Ends a lease as an answer says, or as unresolved where it says nothing that can be charged. */
function conclude(lease, answer, dialect) {
  const told = answer !== null && typeof answer === 'object'
  try {
    if (told) return void lease.finish(answer, { dialect })
  } catch (error) {
    // No report, or no JSON, is no usage; what the ending itself refuses is told.
    if (!(error instanceof UsageError || error instanceof TypeError)) throw error
  }
  lease.unresolved('no_usage')
}

class LeaseMethods {
  settle(report, { dialect } = {}) {
    return new Receipt(this, this._settle(usage(report, dialect)))
  }

  cancel() {
    return new Receipt(this, this._cancel())
  }

  unresolved(cause = 'no_usage', { seen, dialect } = {}) {
    return new Receipt(this, this._unresolved(cause, seen == null ? null : usage(seen, dialect)))
  }

  finish(given, { dialect } = {}) {
    return new Receipt(this, this._finish(outcome(given, dialect)))
  }

  stream(dialect, { stripUsage } = {}) {
    return new Stream(this, this._stream(dialect, stripUsage))
  }

  async run(send, { dialect } = {}) {
    if (!this.sent()) throw new QuotaError('the lease has ended, nothing is to be sent', { code: 'lease_ended' })
    let answer
    try {
      answer = await send(this)
    } catch (error) {
      const status = statusOf(error)
      if (status === undefined) this[dispose]()
      else if (!this._isOver) this.finish(Outcome.ofAnswer(status, error.error, { dialect }))
      throw error
    }
    if (!this._isOver) conclude(this, answer, dialect)
    return answer
  }

  /** Leaves the lease as losing it would: where it has not ended, it is unresolved and stays charged as reserved. */
  [dispose]() {
    this._close()
  }

  async [asyncDispose]() {
    this._close()
  }
}

extend(Lease, LeaseMethods)
show(Lease)
show(Receipt)

module.exports = { Lease, Receipt, Stream, dispose, asyncDispose }
