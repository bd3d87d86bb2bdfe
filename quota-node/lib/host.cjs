'use strict'
// What a host plugs into a gate. What it throws does not get into the gate, which goes on without: it is thrown again from
// the loop, where it is as uncaught as what a listener throws.

function later(error) {
  process.nextTick(() => {
    throw error
  })
}

/** The function, or nothing where it throws. */
function guarded(act) {
  return (...args) => {
    try {
      return act(...args)
    } catch (error) {
      later(error)
      return undefined
    }
  }
}

function method(object, name, what) {
  if (typeof object?.[name] !== 'function') throw new TypeError(`${what} has a method \`${name}\``)
  return (...args) => object[name](...args)
}

/**
 * What the addon is handed in place of a function. The function is among what the gate keeps, and goes with the gate: what the
 * addon holds V8 collects never, nor a gate that such a function has.
 */
function lent(kept, act) {
  kept.add(act)
  return calling(new WeakRef(act))
}

// By itself: a function keeps whatever the function around it has for any other in it.
const calling = (weak) => (...args) => weak.deref()?.(...args)

function nothing() {}

/** A function that is told of JSON text. */
function told(act) {
  return guarded((text) => void act(JSON.parse(text)))
}

function journal(parts, kept, object) {
  const push = lent(kept, told(method(object, 'push', 'a journal')))
  parts.journal(push, push)
}

function estimator(parts, kept, estimate) {
  if (typeof estimate !== 'function') throw new TypeError(`an estimator is a function, not ${typeof estimate}`)
  parts.estimator(
    lent(kept, guarded((request, tokenizer) => counted(estimate(request, tokenizer)))),
    nothing,
  )
}

function counted(answer) {
  const { expected = answer, reserve = expected } = Object(answer)
  for (const count of [expected, reserve]) {
    if (!Number.isSafeInteger(count) || count < 0) throw new TypeError('an estimator gives a whole number, or a TokenCount')
  }
  return answer
}

function pool(parts, kept, LastLoad, name, object) {
  const load = method(object, 'load', 'a pool')
  const last = new LastLoad()
  const look = guarded((nowNs) => {
    const replicas = load(nowNs)
    if (!Array.isArray(replicas)) throw new TypeError('a pool gives its replicas as an array')
    // Looked at here, so that what is no load is thrown here.
    last.set(replicas)
    return replicas
  })
  const ask = lent(kept, look)
  const reports = object.reports === undefined ? true : Boolean(object.reports())
  parts.hostPool(name, ask, ask, last, reports)
}

module.exports = { lent, told, journal, estimator, pool }
