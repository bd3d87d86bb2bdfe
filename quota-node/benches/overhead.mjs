// What a decision costs from Node, beside the same in the core alone and beside an empty call. Run it with a release build.
//
//     npm run build && node benches/overhead.mjs
//
// Each row is the best of many short runs, in microseconds a time: a busy machine interrupts the long ones. Compare rows of
// one run only.

import { FixedPool, Gate, Policy, Principal, Request, Usage } from '../lib/index.mjs'
import native from '../lib/native.cjs'

const TIMES = 500
const RUNS = 400

const limits = { rpm: 1e9, tpm: 1e12, daily_budget_usd: 1e6, max_inflight: 1000 }
const policy = Policy.fromObject({
  models: { m: { price: { input: '0.5', output: 2 } }, pooled: { pool: 'h200' } },
  tenants: { acme: { ...limits, models: { m: { rpm: 1e9 } } }, blue: { models: ['pooled'] } },
})
const body = { model: 'm', max_tokens: 50, messages: [{ role: 'user', content: 'Name three rivers. '.repeat(20) }] }

const gate = new Gate(policy, { pools: { h200: new FixedPool({ replicas: 1, maxRunning: 1 }) } })
const [who, blue] = [new Principal({ tenant: 'acme' }), new Principal({ tenant: 'blue' })]
const request = new Request({ model: 'm', inputTokens: 10, maxOutputTokens: 50 })
const pooled = new Request({ model: 'pooled', inputTokens: 10, maxOutputTokens: 50 })
const usage = Usage.tokens(10, 10)
const report = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 }

async function micros(act, times = TIMES) {
  let best = Infinity
  for (let run = 0; run < RUNS; run++) {
    const started = performance.now()
    await act(times)
    best = Math.min(best, ((performance.now() - started) / times) * 1e3)
    // Node ends what was collected between two turns of its loop: a program that never gives it one keeps all of it.
    await new Promise(setImmediate)
  }
  return best
}

const each = (act) => (times) => {
  for (let time = 0; time < times; time++) act()
}

/** Two take turns in a pool of one: each turn is waited for and wakes the other. */
async function handedOver(times) {
  const work = async () => {
    for (let time = 0; time < times / 2; time++) {
      const lease = await gate.acquire(blue, pooled)
      await new Promise(setImmediate)
      lease.settle(usage)
    }
  }
  await Promise.all([work(), work()])
}

let core = Infinity
for (let run = 0; run < RUNS; run++) core = Math.min(core, native._floor(gate, who, request, TIMES) / 1e3)

const rows = [
  ['an empty native function', await micros(each(() => native._nothing()))],
  ['a property of a native object', await micros(each(() => request.stream))],
  ['admit + settle in the core alone', core],
  ['admit + settle(Usage)', await micros(each(() => gate.admit(who, request).lease.settle(usage)))],
  ['admit, sent, settle(Usage), costUsd', await micros(each(() => {
    const { lease } = gate.admit(who, request)
    lease.sent()
    return lease.settle(usage).costUsd
  }))],
  ['admit + settle(object)', await micros(each(() => gate.admit(who, request).lease.settle(report)))],
  ['await acquire + settle(Usage)', await micros(async (times) => {
    for (let time = 0; time < times; time++) (await gate.acquire(who, request)).settle(usage)
  })],
  ['Request.fromBody(object), 380 bytes of text', await micros(each(() => Request.fromBody('openai_chat', body)))],
  ["acquire that waits for another's end, and is woken", await micros(handedOver, 50)],
]
for (const [name, cost] of rows) console.log(`${name.padEnd(52)} ${cost.toFixed(2).padStart(8)} us`)
