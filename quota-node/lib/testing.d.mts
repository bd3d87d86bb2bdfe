export * from './testing.cjs'
