export { quotaFetch } from './fetch.cjs'
