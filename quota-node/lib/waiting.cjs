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
    if (timeoutMs !== undefined) timer = setTimeout(stop, limited(timeoutMs), timedOut(timeoutMs))
    signal?.addEventListener('abort', abort, { once: true })
    if (signal?.aborted) abort()
    for (;;) {
      await due()
      if (stopped) throw stopped.why
      const given = next()
      if (given) return given
    }
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
    leave()
  }
}

function limited(timeoutMs) {
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0)) throw new TypeError('timeoutMs is a number from 0 on')
  return Math.min(timeoutMs, LONGEST)
}

const timedOut = (timeoutMs) => new DOMException(`no turn within ${timeoutMs} ms`, 'TimeoutError')

module.exports = { wait }
