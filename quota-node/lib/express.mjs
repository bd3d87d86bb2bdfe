export { quotaMiddleware } from './express.cjs'
