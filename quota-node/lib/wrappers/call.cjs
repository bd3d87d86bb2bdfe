'use strict'
// A lease on its way through a host that has several places at which it may end.
//
// The first ending counts, whoever is told of it first; later ones, and those that the lease had elsewhere (by its handler,
// by an operator, by its expiry), change nothing. While a call is on its way its lease is kept alive.

const { EndError, InputError } = require('../errors.cjs')
const { dispose } = require('../lease.cjs')
const { Outcome } = require('../usage.cjs')

/** How often leases are told that their requests are alive; more often where one lives shortly, so that it has two to miss. */
const HEARTBEAT_MS = 1000

/** Endings that came too late: the first one stands. */
const ENDED_ELSEWHERE = ['lease_conflict', 'lease_unknown']

/** What an answer means. One whose body is no JSON has no report. */
function outcomeOf(status, body, dialect) {
  try {
    return Outcome.ofAnswer(status, body, { dialect })
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    return Outcome.ofAnswer(status)
  }
}

/** An admitted request. Whoever runs it keeps this: if it is lost, so is its lease, which is then unresolved. */
class Call {
  constructor(lease, shape) {
    this.lease = lease
    this.shape = shape
    this.isOver = false
    hearts.add(this)
  }

  /** Marks that bytes are about to leave; `false` if the lease has ended meanwhile. */
  sent() {
    return this.lease.sent()
  }

  /** Ends it as the upstream's answer says. */
  finish(outcome) {
    this.#end(() => this.lease.finish(outcome))
  }

  /** The same, by the answer itself. */
  answered(status, body) {
    this.finish(outcomeOf(status, body, this.shape.answer))
  }

  /** Ends it as failed without a report: whether anything is charged is the policy's choice. */
  failed() {
    this.finish(Outcome.failed())
  }

  /** Gives everything back. */
  neverSent() {
    this.#end(() => this.lease.cancel())
  }

  /** Ends it as unresolved: nobody waits for the answer any more. */
  dropped() {
    this.#end(() => this.lease.unresolved('dropped'))
  }

  /** Ends it as unresolved: it has run, and what it used is not known. */
  noUsage() {
    this.#end(() => this.lease.unresolved('no_usage'))
  }

  /** Leaves it to whoever has it, who may have ended it already. */
  left() {
    this.#end(() => this.lease[dispose]())
  }

  /** Ends it by what its stream told, and gives the bytes that go on to the asker after it. */
  endStream(stream) {
    this.#end(() => stream.finish())
    return stream.tail
  }

  #end(end) {
    if (this.isOver) return
    this.isOver = true
    hearts.delete(this)
    try {
      end()
    } catch (error) {
      if (!(error instanceof EndError && ENDED_ELSEWHERE.includes(error.code))) throw error
    }
  }
}

/** The calls that are on their way. None is kept by being here, and the timer keeps no process alive. */
const hearts = {
  refs: new Map(),
  timer: undefined,
  everyMs: Infinity,

  add(call) {
    this.refs.set(call.lease.id, new WeakRef(call))
    const everyMs = Math.min(HEARTBEAT_MS, call.lease.ttlMs / 3)
    if (everyMs >= this.everyMs) return
    clearInterval(this.timer)
    this.everyMs = everyMs
    this.timer = setInterval(() => this.beat(), everyMs).unref()
  },

  delete(call) {
    this.refs.delete(call.lease.id)
  },

  beat() {
    for (const [id, ref] of this.refs) {
      const call = ref.deref()
      if (call) call.lease.renew()
      else this.refs.delete(id)
    }
    if (this.refs.size > 0) return
    clearInterval(this.timer)
    this.timer = undefined
    this.everyMs = Infinity
  },
}

module.exports = { Call, outcomeOf }
