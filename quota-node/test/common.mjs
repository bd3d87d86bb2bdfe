// What the tests have in common.

import { FixedPool, Gate, Policy, Principal, Request } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

export const DOCUMENT = {
  models: { m: { price: { input: '0.5', output: 2 } }, pooled: { pool: 'h200' } },
  tenants: {
    acme: { rpm: 1000, tpm: 1000000, daily_budget_usd: 10, models: ['m', 'pooled'] },
    blue: { models: ['pooled'] },
  },
}

export const ACME = new Principal({ tenant: 'acme' })
export const BLUE = new Principal({ tenant: 'blue' })

/** A gate on a clock that stands still, with a pool of one. */
export function stage(options = {}) {
  const clock = new ManualClock()
  const pools = { h200: new FixedPool({ replicas: 1, maxRunning: 1 }) }
  return { clock, gate: new Gate(Policy.fromObject(DOCUMENT), { clock, pools, ...options }) }
}

export const request = (options = {}) => new Request({ model: 'm', inputTokens: 10, maxOutputTokens: 50, ...options })
export const pooled = (options = {}) => request({ model: 'pooled', ...options })

/** Looks again until it is so, at most ten seconds. */
export async function until(holds, what) {
  const end = performance.now() + 10_000
  while (!holds()) {
    if (performance.now() > end) throw new Error(`never came: ${what}`)
    await new Promise(setImmediate)
  }
}

export const waits = (gate, count) => until(() => gate.poolLoad('h200').waiting === count, `${count} that wait`)
