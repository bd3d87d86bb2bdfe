export * from './openai.cjs'
