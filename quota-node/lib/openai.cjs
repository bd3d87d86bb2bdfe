'use strict'
// OpenAI's client with a gate before its calls.

const { Terms, wrapped } = require('./wrappers/outgoing.cjs')
const { FREE, OPENAI } = require('./wrappers/routes.cjs')

const wrap = (client, options) => wrapped(client, new Terms(options, { routes: OPENAI, free: FREE }))

module.exports = { wrap }
