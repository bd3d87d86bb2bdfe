export * from './hono.cjs'
