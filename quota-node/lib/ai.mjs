export { quotaMiddleware } from './ai.cjs'
