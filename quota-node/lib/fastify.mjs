export { quotaPlugin } from './fastify.cjs'
