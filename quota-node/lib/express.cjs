'use strict'
// A middleware for Express 5, and for whatever else calls `(req, res, next)`.

const { ROUTES } = require('./wrappers/routes.cjs')
const { Door } = require('./wrappers/door.cjs')
const { enter } = require('./wrappers/node.cjs')

function quotaMiddleware(options) {
  const door = new Door(options)
  return (req, res, next) => {
    const route = door.route(req.method, req.path ?? req.url)
    if (!route) return next()
    const body = req.body === undefined ? {} : { given: req.body }
    enter(door, route, req, res, body).then(({ admitted, answer }) => {
      if (answer) res.writeHead(answer.status, answer.headers).end(answer.text)
      if (!admitted) return
      req.body = admitted.parsed
      req.quota = admitted.quota
      req.url = route.readdressed(req.url, admitted.quota.lease.model)
      next()
    }, next)
  }
}

module.exports = { ROUTES, quotaMiddleware }
