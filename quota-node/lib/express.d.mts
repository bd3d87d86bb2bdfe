export * from './express.cjs'
