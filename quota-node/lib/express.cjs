'use strict'
// A middleware for Express 5, and for whatever else calls `(req, res, next)`.

const { ROUTES } = require('./wrappers/routes.cjs')
const { Door } = require('./wrappers/door.cjs')
const { enter } = require('./wrappers/node.cjs')

function quotaMiddleware(options) {
  const door = new Door(options)
  return (req, res, next) => {
    // The whole path: where it is mounted takes its part away.
    const route = door.route(req.method, (req.baseUrl ?? '') + req.url)
    if (!route) return next()
    const { body } = req
    const letIn = ({ admitted, answer }) => {
      if (answer) res.writeHead(answer.status, answer.headers).end(answer.text)
      if (!admitted) return
      req.body = likewise(body, admitted)
      req.quota = admitted.quota
      req.url = route.readdressed(req.url, admitted.quota.lease.upstreamModel)
      next()
    }
    enter(door, route, req, res, { given: body }).then(letIn).catch(next)
  }
}

/** The body in the form that a parser before this one has given it; parsed where there was none. */
function likewise(given, { parsed, quota }) {
  if (given instanceof Uint8Array) return quota.body
  return typeof given === 'string' ? quota.body.toString() : parsed
}

module.exports = { ROUTES, quotaMiddleware }
