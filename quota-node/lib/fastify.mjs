export { ROUTES, quotaPlugin } from './fastify.cjs'
