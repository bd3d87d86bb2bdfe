// The shared corpus: the same files that the core runs, each case by the runner of its kind.

import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import * as calendar from './corpus/calendar.mjs'
import { CORE, Failed } from './corpus/common.mjs'
import * as config from './corpus/config.mjs'
import * as estimate from './corpus/estimate.mjs'
import * as keys from './corpus/keys.mjs'
import * as metrics from './corpus/metrics.mjs'
import * as price from './corpus/price.mjs'
import * as queue from './corpus/queue.mjs'
import * as respond from './corpus/respond.mjs'
import * as scenario from './corpus/scenario.mjs'
import * as schedule from './corpus/schedule.mjs'
import * as sse from './corpus/sse.mjs'
import * as tokens from './corpus/tokens.mjs'
import * as upstream from './corpus/upstream.mjs'
import * as usage from './corpus/usage.mjs'

const RUNNERS = {
  calendar,
  config,
  estimate,
  keys,
  metrics,
  price,
  queue,
  respond,
  scenario,
  schedule,
  sse,
  tokens,
  upstream,
  usage,
}

const names = readdirSync(`${CORE}/vectors`).filter((name) => name.endsWith('.json')).sort()
const files = names.map((name) => ({ name, ...JSON.parse(readFileSync(`${CORE}/vectors/${name}`, 'utf8')) }))
const ran = {}

for (const { name, kind, cases } of files) {
  const runner = RUNNERS[kind]
  for (const vector of cases) {
    test(`${name} ${vector.id}`, () => {
      assert.ok(runner, `no runner for the kind ${kind}`)
      ran[kind] = (ran[kind] ?? 0) + 1
      runner.run(vector)
    })
  }
}

test('every case was run', (t) => {
  const inFiles = {}
  for (const { kind, cases } of files) inFiles[kind] = (inFiles[kind] ?? 0) + cases.length
  const all = Object.values(inFiles).reduce((sum, count) => sum + count, 0)
  const counts = Object.entries(inFiles).sort().map(([kind, count]) => `${kind} ${count}`)
  t.diagnostic(`corpus in Node: ${counts.join(', ')}; ${all} cases`)
  assert.deepEqual(ran, inFiles)
  const [, count] = /const COUNT: usize = (\d+);/.exec(readFileSync(`${CORE}/corpus/main.rs`, 'utf8'))
  assert.equal(Number(count), all)
})

test('a script is read to the letter', () => {
  const policy = { tenants: { acme: { models: ['m'], rpm: 2 } } }
  const script = (...steps) => scenario.run({ id: 'x', about: 'x', policy, steps })
  script({ do: 'admit', expect: 'allow' })
  const faults = [
    [{ inptu: 5 }, 'nothing reads `inptu`'],
    [{ do: 'admti' }, 'no verb `admti`'],
    [{ who: { usr: 'u' } }, 'nothing reads `usr`'],
    [{ input: '5' }, '`input` is no count'],
    [{ expect: { action: 'reject' } }, 'action is "allow", not "reject"'],
    [{ expect: { actoin: 'allow' } }, 'there is no `actoin`'],
    [{ expect: { remaining: { rps: 1 } } }, 'there is no `remaining.rps`'],
    [{ expect: { remaining: { rpm: 2 } } }, 'remaining.rpm is 1, not 2'],
    [{ expect: { repeat: 0 } }, 'repeat is false, not 0'],
  ]
  for (const [step, want] of faults) {
    const fails = (error) => error instanceof Failed && error.message.includes(want)
    assert.throws(() => script({ do: 'admit', expect: 'allow', ...step }), fails, want)
  }
  assert.throws(() => script({ at_ms: 5, do: 'sweep' }, { at_ms: 4, do: 'sweep' }), Failed)
})
