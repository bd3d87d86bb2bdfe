'use strict'
// Anthropic's client with a gate before its calls.

const { Terms, wrapped } = require('./wrappers/outgoing.cjs')
const { ANTHROPIC, FREE } = require('./wrappers/routes.cjs')

const wrap = (client, options) => wrapped(client, new Terms(options, { routes: ANTHROPIC, free: FREE }))

module.exports = { wrap }
