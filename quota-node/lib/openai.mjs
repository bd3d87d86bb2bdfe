export { wrap } from './openai.cjs'
