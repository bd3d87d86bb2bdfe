export { ROUTES, quotaMiddleware } from './express.cjs'
