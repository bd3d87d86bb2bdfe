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

/** A function that is told of JSON text, at once and where it is posted. */
function told(act) {
  const tell = guarded((text) => void act(JSON.parse(text)))
  return [tell, tell]
}

function journal(parts, object) {
  parts.journal(...told(method(object, 'push', 'a journal')))
}

function estimator(parts, estimate) {
  if (typeof estimate !== 'function') throw new TypeError(`an estimator is a function, not ${typeof estimate}`)
  parts.estimator(
    guarded((request, tokenizer) => counted(estimate(request, tokenizer))),
    () => {},
  )
}

function counted(answer) {
  const { expected = answer, reserve = expected } = Object(answer)
  for (const count of [expected, reserve]) {
    if (!Number.isSafeInteger(count) || count < 0) throw new TypeError('an estimator gives a whole number, or a TokenCount')
  }
  return answer
}

function pool(parts, LastLoad, name, object) {
  const load = method(object, 'load', 'a pool')
  const last = new LastLoad()
  const ask = guarded((nowNs) => {
    const replicas = load(nowNs)
    if (!Array.isArray(replicas)) throw new TypeError('a pool gives its replicas as an array')
    // Looked at here, so that what is no load is thrown here.
    last.set(replicas)
    return replicas
  })
  const reports = object.reports === undefined ? true : Boolean(object.reports())
  parts.hostPool(name, (nowNs) => ask(nowNs) ?? null, (nowNs) => void ask(nowNs), last, reports)
}

module.exports = { told, journal, estimator, pool }
