// Cases of kind `upstream`: waits, rate-limit headers and errors of an upstream.

import { UpstreamError, UpstreamLimits, upstreamWaitMs } from 'quota-node'
import { ManualClock } from 'quota-node/testing'
import { equal, picked, renamed, snake } from './common.mjs'

const LIMITS = ['requests', 'tokens', 'input_tokens', 'output_tokens']

export function run(vector) {
  const clock = new ManualClock(vector.now)
  if (typeof vector.value === 'string') return equal('ms', upstreamWaitMs(vector.value, { clock }), vector.ms ?? null)
  if (vector.headers) {
    const limits = UpstreamLimits.read(vector.headers, { clock })
    const told = picked(limits, [...LIMITS, 'retry_after_ms', 'should_retry'])
    for (const name of LIMITS) if (told[name]) told[name] = renamed(told[name], snake)
    return equal('told', told, vector.told)
  }
  const error = UpstreamError.read(vector.status, vector.body, { clock })
  const found = { fault: error.fault, retryable: error.isRetryable, ...picked(error, ['code', 'retry_after_ms']) }
  equal('error', found, vector.error)
}
