'use strict'
// The lease, its stream, and the receipt of its ending.

const native = require('./native.cjs')
const { UsageError, QuotaError } = require('./errors.cjs')
const { Usage, Outcome, usage, outcome } = require('./usage.cjs')
const { document } = require('./text.cjs')
const { show } = require('./shown.cjs')

// Node 20 has these symbols; whoever lacks them has no `using` either.
const { dispose = Symbol('dispose'), asyncDispose = Symbol('asyncDispose') } = Symbol

/** Only this package makes leases: a number by itself is nobody's. */
const MADE = Symbol('made')

let numberOf

/** An admitted request. The addon has it under a number, for as long as this object can be reached. */
class Lease {
  #number

  static {
    numberOf = (lease) => lease.#number
  }

  constructor(made, number) {
    if (made !== MADE) throw new TypeError('Lease is not made with `new`: a gate gives leases')
    this.#number = number
  }

  get id() {
    return native._leaseId(this.#number)
  }

  get requestId() {
    return native._leaseRequestId(this.#number)
  }

  get principal() {
    return native._leasePrincipal(this.#number)
  }

  get model() {
    return native._leaseModel(this.#number)
  }

  get upstreamModel() {
    return native._leaseUpstreamModel(this.#number)
  }

  get lane() {
    return native._leaseLane(this.#number)
  }

  get maxOutputTokens() {
    return native._leaseMaxOutputTokens(this.#number)
  }

  get inputTokens() {
    return native._leaseInputTokens(this.#number)
  }

  get expectedOutputTokens() {
    return native._leaseExpectedOutputTokens(this.#number)
  }

  get worstUsd() {
    return native._leaseWorstUsd(this.#number)
  }

  get degradation() {
    return native._leaseDegradation(this.#number)
  }

  get isRepeat() {
    return native._leaseIsRepeat(this.#number)
  }

  get isOpen() {
    return native._leaseIsOpen(this.#number)
  }

  get ttlMs() {
    return native._leaseTtlMs(this.#number)
  }

  get rank() {
    return native._leaseRank(this.#number)
  }

  get waitedMs() {
    return native._leaseWaitedMs(this.#number)
  }

  get softPassed() {
    return native._leaseSoftPassed(this.#number)
  }

  sent() {
    return native._leaseSent(this.#number)
  }

  renew() {
    return native._leaseRenew(this.#number)
  }

  extend(outputTokens) {
    native._leaseExtend(this.#number, outputTokens)
  }

  progress(outputTokens) {
    native._leaseProgress(this.#number, outputTokens)
  }

  poolRefused() {
    native._leasePoolRefused(this.#number)
  }

  settle(report, { dialect } = {}) {
    if (report instanceof Usage) return new Receipt(this, native._leaseSettle(this.#number, report))
    return new Receipt(this, native._leaseSettleText(this.#number, document(report), dialect))
  }

  cancel() {
    return new Receipt(this, native._leaseCancel(this.#number))
  }

  unresolved(cause = 'no_usage', { seen, dialect } = {}) {
    const known = seen == null ? null : usage(seen, dialect)
    return new Receipt(this, native._leaseUnresolved(this.#number, cause, known))
  }

  finish(given, { dialect } = {}) {
    return new Receipt(this, native._leaseFinish(this.#number, outcome(given, dialect)))
  }

  stream(dialect, { stripUsage } = {}) {
    native._stream(this.#number, dialect, stripUsage)
    return new Stream(this)
  }

  async run(send, { dialect } = {}) {
    if (!this.sent()) throw new QuotaError('the lease has ended, nothing is to be sent', { code: 'lease_ended' })
    let answer
    try {
      answer = await send(this)
    } catch (error) {
      const status = statusOf(error)
      if (status === undefined) this[dispose]()
      else if (!this.#isOver) this.finish(Outcome.ofAnswer(status, error.error, { dialect }))
      throw error
    }
    if (!this.#isOver) conclude(this, answer, dialect)
    return answer
  }

  get #isOver() {
    return native._leaseIsOver(this.#number)
  }

  /** Leaves the lease as losing it would: where it has not ended, it is unresolved and stays charged as reserved. */
  [dispose]() {
    native._leaseClose(this.#number)
  }

  async [asyncDispose]() {
    this[dispose]()
  }
}

/** The gate of each lease that somebody may have, by its number: what is plugged into the gate is told of the lease's end. */
const gates = []

/** Frees the numbers of leases that nobody has any more; those that have not ended are then unresolved. */
const lost = new FinalizationRegistry((number) => {
  gone[count++] = number
  if (count === gone.length) free()
  else if (count === 1) queueMicrotask(free)
})

/** Numbers that are to be freed, many in one call. */
const gone = new Uint32Array(256)
let count = 0

function free() {
  const [many, told] = [count, new Set()]
  count = 0
  // Not afterwards: what is told of an end may admit a request, whose lease takes one of the numbers.
  for (let at = 0; at < many; at++) {
    told.add(gates[gone[at]])
    gates[gone[at]] = undefined
  }
  native._leasesLost(gone, many)
  // The gates are here until then.
  told.clear()
}

/** The lease of a number that a gate has given. */
function leaseOf(number, gate) {
  const lease = new Lease(MADE, number)
  lost.register(lease, number)
  gates[number] = gate
  return lease
}

/** What finalizing did. Each figure is looked up when it is asked for. */
class Receipt {
  // A lease and the number of its ending; or all figures, where no lease is at hand.
  #lease
  #ending
  #data

  constructor(lease, ending, data) {
    this.#lease = lease
    this.#ending = ending
    this.#data = data
  }

  #figure(name, look) {
    // The number is that lease's for as long as somebody has it, as this does.
    return this.#data ? this.#data[name] : look(numberOf(this.#lease), this.#ending >> 1)
  }

  get leaseId() {
    return this.#figure('leaseId', native._receiptLeaseId)
  }

  get requestId() {
    return this.#figure('requestId', native._receiptRequestId)
  }

  get outcome() {
    return this.#figure('outcome', native._receiptOutcome)
  }

  get usage() {
    return this.#figure('usage', native._receiptUsage)
  }

  get costUsd() {
    return this.#figure('costUsd', native._receiptCostUsd)
  }

  get held() {
    return this.#figure('held', native._receiptHeld)
  }

  get charged() {
    return this.#figure('charged', native._receiptCharged)
  }

  get returned() {
    return this.#figure('returned', native._receiptReturned)
  }

  get overrun() {
    return this.#figure('overrun', native._receiptOverrun)
  }

  get late() {
    return this.#figure('late', native._receiptLate)
  }

  get repeat() {
    return this.#data ? this.#data.repeat : (this.#ending & 1) === 1
  }
}

/** The meter of a streamed answer. */
class Stream {
  #lease
  #tail = Buffer.alloc(0)

  constructor(lease) {
    this.#lease = lease
  }

  get #number() {
    return numberOf(this.#lease)
  }

  get lease() {
    return this.#lease
  }

  feed(chunk) {
    // Mostly all of it passes, unchanged.
    return native._streamFeed(this.#number, chunk) ?? chunk
  }

  keep() {
    native._streamKeep(this.#number)
  }

  get outputSoFar() {
    return native._streamOutputSoFar(this.#number)
  }

  get isDone() {
    return native._streamIsDone(this.#number)
  }

  finish() {
    const tail = native._streamFinish(this.#number)
    if (tail.length > 0) this.#tail = tail
    return this.receipt
  }

  get tail() {
    return this.#tail
  }

  get receipt() {
    const ending = native._streamFinished(this.#number)
    return ending === null ? null : new Receipt(this.#lease, ending)
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

show(Lease)
show(Receipt)
show(Stream, { hidden: ['tail'] })

module.exports = { Lease, Receipt, Stream, leaseOf, dispose, asyncDispose }
