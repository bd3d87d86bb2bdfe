'use strict'
// Waiting for a place's turn, and stopping to.
//
// A place is given up by whoever stops waiting, however that comes about, and with it a turn that came in the same moment:
// between a turn and what it is for there is no point at which anybody can stop.

/** The longest that a timer of Node's takes; longer ones fire at once. */
const LONGEST = 2 ** 31 - 1

/**
 * What `next` gives, once it gives something. It is asked when `due()`, a promise or nothing, is over; `leave()` gives the
 * place up, which ends that promise too.
 */
async function wait({ due, leave, next }, { signal, timeoutMs } = {}) {
  let stopped
  const stop = (why) => {
    stopped ??= { why }
    leave()
  }
  const abort = () => stop(signal.reason)
  let timer
  try {
    const longest = limited(timeoutMs) ?? Infinity
    if (longest < Infinity) timer = setTimeout(stop, Math.min(longest, LONGEST), timedOut(timeoutMs))
    if (signal) listen(signal, abort)
    if (signal?.aborted) abort()
    for (;;) {
      await due()
      if (stopped) throw stopped.why
      const given = next()
      if (given) return given
    }
  } finally {
    clearTimeout(timer)
    if (signal) unlisten(signal, abort)
    leave()
  }
}

/** What is called when a signal aborts. It has one listener for all that wait: of more than ten Node warns as of a leak. */
const listening = new WeakMap()

function listen(signal, act) {
  let all = listening.get(signal)
  if (!all) {
    all = { acts: new Set(), abort: () => [...all.acts].forEach((act) => act()) }
    signal.addEventListener('abort', all.abort)
    listening.set(signal, all)
  }
  all.acts.add(act)
}

function unlisten(signal, act) {
  const all = listening.get(signal)
  if (!all?.acts.delete(act) || all.acts.size > 0) return
  signal.removeEventListener('abort', all.abort)
  listening.delete(signal)
}

/** A time-out that is one; checked also where nobody has to wait. */
function limited(timeoutMs) {
  if (timeoutMs === undefined) return undefined
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0)) throw new TypeError('timeoutMs is a number from 0 on')
  return timeoutMs
}

const timedOut = (timeoutMs) => new DOMException(`no turn within ${timeoutMs} ms`, 'TimeoutError')

module.exports = { wait, limited }
