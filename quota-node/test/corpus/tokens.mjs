// Cases of kind `tokens`: counts of texts per encoding; exact ones where the build has the encoding.

import { countTokens } from 'quota-node'
import { Failed, equal, show } from './common.mjs'

const ENCODINGS = { o200k_base: 'gpt-4o', cl100k_base: 'gpt-4' }

export function run(vector) {
  const text = vector.text ?? vector.repeat.repeat(vector.times)
  for (const [tokenizer, model] of Object.entries(ENCODINGS)) {
    const want = vector.counts[tokenizer]
    const counted = countTokens(text, { tokenizer, model })
    if (counted.exact) equal(tokenizer, [counted.expected, counted.reserve], [want, want])
    for (const { expected, reserve } of [counted, countTokens(text, { model })]) {
      if (reserve * 100 < want * 95 || reserve < expected) {
        throw new Failed(`${tokenizer}: ${show([expected, reserve])}, not at least 0.95 of ${want}`)
      }
    }
  }
}
