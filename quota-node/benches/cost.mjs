// What a decision costs from Node: beside the calls that it is made of, beside the same in the core alone, and beside
// `rate-limiter-flexible` and `bottleneck`. Run it with a release build.
//
// All rows run in turn, many short runs each: the median and the best, in microseconds a time. A turn of the loop, in which Node
// ends what was collected, is part of each run. Compare rows of one run only; where others use the machine, the best ones.

import { cpus } from 'node:os'
import Bottleneck from 'bottleneck'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { FixedPool, Gate, Policy, Principal, Request, Usage } from '../lib/index.mjs'
import native from '../lib/native.cjs'

const TIMES = 100
const RUNS = 400
/** On top of the calls' floor. */
const TARGET = 2

const limits = { rpm: 1e9, tpm: 1e12, daily_budget_usd: 1e6, max_inflight: 1000 }
const policy = Policy.fromObject({
  models: { m: { price: { input: '0.5', output: 2 } }, pooled: { pool: 'h200' } },
  tenants: { acme: { ...limits, models: { m: { rpm: 1e9, tpm: 1e12 } } }, blue: { models: ['pooled'] } },
})
const gate = new Gate(policy, { pools: { h200: new FixedPool({ replicas: 1, maxRunning: 1 }) } })
const [who, blue] = [new Principal({ tenant: 'acme' }), new Principal({ tenant: 'blue' })]
const request = new Request({ model: 'm', inputTokens: 10, maxOutputTokens: 50 })
const pooled = new Request({ model: 'pooled', inputTokens: 10, maxOutputTokens: 50 })
const body = { model: 'm', max_tokens: 50, messages: [{ role: 'user', content: 'Name three rivers. '.repeat(20) }] }
const usage = Usage.tokens(10, 10)
const report = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 }

const six = Array.from({ length: 6 }, () => new RateLimiterMemory({ points: 1e9, duration: 60 }))
const bottleneck = new Bottleneck({ maxConcurrent: 1000, reservoir: 1e9 })

let sink
function nothing(value) {
  sink = value
}

const each = (act) => async (times) => {
  for (let time = 0; time < times; time++) act()
}

const awaited = (act) => async (times) => {
  for (let time = 0; time < times; time++) await act()
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

async function sixInSequence() {
  for (const limiter of six) await limiter.consume('acme', 1)
}

const rows = {
  'an empty JavaScript function': each(() => nothing(1)),
  'an empty native function': each(() => native._nothing()),
  'a property of a native object': each(() => request.stream),
  'admit + settle(Usage)': each(() => gate.admit(who, request).lease.settle(usage)),
  'admit + settle(object)': each(() => gate.admit(who, request).lease.settle(report)),
  'admit, sent, settle(object), costUsd': each(() => {
    const { lease } = gate.admit(who, request)
    lease.sent()
    sink = lease.settle(report).costUsd
  }),
  'await acquire + settle(Usage)': awaited(async () => (await gate.acquire(who, request)).settle(usage)),
  'rate-limiter-flexible: six limits in sequence': awaited(sixInSequence),
  'bottleneck: one job that does nothing': awaited(() => bottleneck.schedule(async () => {})),
  'Request.fromBody(object), 380 bytes of text': each(() => Request.fromBody('openai_chat', body)),
  "acquire that waits for another's end, and is woken": handedOver,
}
const fewer = { "acquire that waits for another's end, and is woken": 20, 'bottleneck: one job that does nothing': 1 }

const measured = Object.fromEntries(Object.keys(rows).map((name) => [name, []]))
const core = []
for (let run = 0; run < RUNS; run++) {
  for (const [name, act] of Object.entries(rows)) {
    const times = fewer[name] ?? TIMES
    const started = performance.now()
    await act(times)
    await new Promise(setImmediate)
    measured[name].push(((performance.now() - started) / times) * 1e3)
  }
  core.push(native._floor(gate, who, request, TIMES) / 1e3)
}

measured['admit + settle in the core alone'] = core
const figures = Object.entries(measured).map(([name, all]) => {
  all.sort((a, b) => a - b)
  return [name, { median: all[all.length >> 1], best: all[0] }]
})
const of = Object.fromEntries(figures)

const ours = of['await acquire + settle(Usage)']
console.log(`Node ${process.version}, ${cpus()[0].model}, ${cpus().length} cores; ${RUNS} runs of each; microseconds`)
console.log(`${''.padEnd(52)}   median     best   of await acquire + settle`)
for (const [name, { median, best }] of figures) {
  const shown = [median, best, median / ours.median].map((figure) => figure.toFixed(2).padStart(8))
  console.log(`${name.padEnd(52)} ${shown.join(' ')} x`)
}

const told = (met) => (met ? 'met' : 'MISSED')
for (const kind of ['median', 'best']) {
  const cost = of['admit + settle(Usage)'][kind] - 2 * of['an empty native function'][kind]
  const own = cost - of['admit + settle in the core alone'][kind]
  console.log(`${kind}: admit + settle(Usage) over two empty calls ${cost.toFixed(2)}, target ${TARGET}: ${told(cost <= TARGET)}`)
  console.log(`  of that over the core alone: ${own.toFixed(2)}`)
  for (const name of ['rate-limiter-flexible: six limits in sequence', 'bottleneck: one job that does nothing']) {
    const ratio = of[name][kind] / ours[kind]
    console.log(`  ${name}: ${ratio.toFixed(2)} x of await acquire + settle(Usage), target 1: ${told(ratio >= 1)}`)
  }
}
