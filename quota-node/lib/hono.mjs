export { ROUTES, quotaMiddleware } from './hono.cjs'
