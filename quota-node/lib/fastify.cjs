'use strict'
// A plugin for Fastify 5.

const { Readable } = require('node:stream')
const { ROUTES } = require('./wrappers/routes.cjs')
const { Door } = require('./wrappers/door.cjs')
const { enter } = require('./wrappers/node.cjs')

async function quotaPlugin(fastify, options) {
  const door = new Door(options)
  fastify.decorateRequest('quota', null)
  // Here a body is still a stream, whichever parser is to read it, or none where the route is a proxy.
  fastify.addHook('preParsing', async (request, reply, payload) => {
    const route = door.route(request.method, request.url)
    if (!route) return payload
    const maxBody = Math.min(door.maxBody, request.routeOptions.bodyLimit ?? Infinity)
    const { admitted, answer } = await enter(door, route, request.raw, reply.raw, { asked: request, payload, maxBody })
    if (answer) return reply.code(answer.status).headers(answer.headers).send(answer.text)
    if (!admitted) return reply.hijack()
    request.quota = admitted.quota
    request.raw.url = route.readdressed(request.raw.url, admitted.quota.lease.upstreamModel)
    return Readable.from([admitted.quota.body], { objectMode: false })
  })
}

// What `fastify-plugin` does: the hook is of the instance that it is registered in, not of one below that.
Object.assign(quotaPlugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'quota-node',
  [Symbol.for('plugin-meta')]: { name: 'quota-node', fastify: '5.x' },
})

module.exports = { ROUTES, quotaPlugin }
