export * from './fastify.cjs'
