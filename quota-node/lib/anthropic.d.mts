export * from './anthropic.cjs'
