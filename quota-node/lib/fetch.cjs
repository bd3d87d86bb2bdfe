'use strict'
// A `fetch` with a gate before its calls of models.

const { Terms, throughGate } = require('./wrappers/outgoing.cjs')
const { CALLS, FREE } = require('./wrappers/routes.cjs')

function quotaFetch(fetch, { routes = CALLS, ...options } = {}) {
  if (typeof fetch !== 'function') throw new TypeError('fetch: a function is wanted')
  return throughGate(fetch, new Terms(options, { routes, free: FREE }))
}

module.exports = { ROUTES: CALLS, quotaFetch }
