export { wrap } from './anthropic.cjs'
