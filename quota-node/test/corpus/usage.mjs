// Cases of kind `usage`: an upstream's status and body, and what they mean.

import { Outcome } from 'quota-node'
import { ACME, request, stage } from '../common.mjs'
import { equal, without } from './common.mjs'

const COUNTS = {
  inputUncached: 'input_uncached',
  inputCacheRead: 'input_cache_read',
  inputCacheWrite5m: 'input_cache_write_5m',
  inputCacheWrite1h: 'input_cache_write_1h',
  inputCacheWriteOther: 'input_cache_write_other',
  inputAudio: 'input_audio',
  inputImage: 'input_image',
  inputVideo: 'input_video',
  outputText: 'output_text',
  outputReasoning: 'output_reasoning',
  outputAudio: 'output_audio',
  outputImage: 'output_image',
  audioMillis: 'audio_millis',
  webSearches: 'web_searches',
  searchUnits: 'search_units',
  pages: 'pages',
  images: 'images',
  anomalies: 'anomalies',
}

/** Every field that is not zero, and the totals. */
export function normalized(usage) {
  const found = {}
  for (const [name, vector] of Object.entries(COUNTS)) if (usage[name] > 0) found[vector] = usage[name]
  Object.assign(found, { input_total: usage.inputTotal, output_total: usage.outputTotal })
  if (usage.providerCostUsd !== null) found.provider_cost = usage.providerCostUsd
  if (usage.serviceTier !== null) found.service_tier = usage.serviceTier
  if (usage.inputMissing) found.input_missing = true
  return found
}

export function told(outcome, estimate) {
  const found = { state: outcome.state }
  if (outcome.usage) found.normalized = normalized(outcome.usage.orInput(estimate))
  if (outcome.code) found.code = outcome.code
  return found
}

export function run(vector) {
  const outcome = Outcome.ofAnswer(vector.status, vector.body, { dialect: vector.dialect })
  const found = told(outcome, vector.estimate ?? 0)
  if ('message' in vector && outcome.message) found.message = outcome.message
  equal('it', found, without(vector, ['id', 'about', 'dialect', 'status', 'body', 'estimate']))
  if (outcome.state === 'final' && vector.status === 200) settled(vector, outcome.usage)
}

/** A lease that is settled with the answer itself, as an object or a text, is charged the same. */
function settled({ body, dialect }, usage) {
  for (const report of [body, JSON.stringify(body)]) {
    const lease = stage().gate.admit(ACME, request()).granted()
    const receipt = lease.settle(report, { dialect })
    equal('settled', normalized(receipt.usage), normalized(usage.orInput(lease.inputTokens)))
  }
}
