export * from './fetch.cjs'
