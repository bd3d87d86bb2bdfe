export { ROUTES, quotaFetch } from './fetch.cjs'
