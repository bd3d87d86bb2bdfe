export { quotaMiddleware } from './hono.cjs'
