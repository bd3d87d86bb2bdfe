export * from './ai.cjs'
