// What the wrappers' tests share: a policy, a gate, its books, and looking again until a deadline.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as after } from 'node:timers/promises'
import { Gate, Policy, Principal, Request } from 'quota-node'
import { replay } from 'quota-node/testing'
import { INPUT, OUTPUT } from './upstream.mjs'

const POLICY = {
  models: {
    m: { price: { input: 1, output: 2 }, max_output: 400, pool: 'h200' },
    dear: { price: { input: 10, output: 20 }, max_output: 400 },
    // The upstream is told `m`.
    alias: { upstream: 'm', max_output: 400 },
  },
  queues: { chat: { max_wait_ms: 20_000 }, hasty: { max_wait_ms: 50 } },
  tenants: {
    acme: {
      requests_per_day: 1000,
      input_tokens_per_day: 1_000_000,
      output_tokens_per_day: 1_000_000,
      max_inflight: 100,
      models: ['m', 'alias'],
    },
    // One request a minute.
    slow: { requests_per_minute: { hard: 1 }, models: ['m'] },
    // One request at a time, the others wait.
    queue: {
      requests_per_day: 1000,
      output_tokens_per_day: 1_000_000,
      max_inflight: { hard: 1, on_exceed: 'queue' },
      models: ['m'],
    },
    // A lesser form of everything.
    soft: { daily_budget_usd: { soft: 0, hard: 1 }, models: ['m', 'dear'] },
    // Few words.
    short: { output_tokens_per_day: { hard: 420, hold: 'p95' }, models: ['m'] },
  },
  degrade: [
    {
      when: { soft: 'daily_budget_usd', model: 'dear' },
      model: 'm',
      max_output_tokens: 8,
      disable_tools: ['web_search'],
    },
  ],
}

export const newGate = () => new Gate(Policy.fromObject(POLICY))

export const principal = (tenant = 'acme') => new Principal({ tenant })

/** A bearer key of a tenant. */
export const keyOf = (gate, tenant = 'acme') => gate.issueKey({ tenant, author: 'test' }).secret

/** How long a test waits for what must happen. */
const DEADLINE_MS = 20_000

/** Looks again and again until it is so; fails when it never is. */
export async function until(happens) {
  const end = performance.now() + DEADLINE_MS
  while (!happens()) {
    assert.ok(performance.now() < end, `it did not happen within ${DEADLINE_MS} ms: ${happens}`)
    await after(2)
  }
}

/** Has the gate learnt that answers are short, so that a lease of `short` holds little. */
export function learn(gate) {
  const who = principal('short')
  for (let number = 0; number < 32; number++) {
    const request = new Request({ model: 'm', inputTokens: 10, maxOutputTokens: 380 })
    gate.admit(who, request).lease.settle({ prompt_tokens: 1, completion_tokens: 1 })
  }
}

/** What a tenant's accounts say. */
export class Books {
  constructor(gate, tenant = 'acme') {
    this.gate = gate
    this.who = principal(tenant)
  }

  used(limit) {
    return this.gate.balances(this.who).find((balance) => balance.limit === limit).used
  }

  get inFlight() {
    return this.used('max_inflight')
  }

  get waiting() {
    return this.gate.poolLoad('h200').waiting
  }

  /** Requests, input and output. */
  get charged() {
    return ['rpd', 'input_tpd', 'output_tpd'].map((limit) => this.used(limit))
  }

  get unresolved() {
    return this.gate.unresolved().map((left) => left.cause)
  }

  /** That nothing is open, so many requests are charged as they were reported, and the journal adds up to the same. */
  settled(requests, { output = OUTPUT } = {}) {
    assert.deepEqual(this.unresolved, [])
    assert.deepEqual([this.inFlight, ...this.charged], [0, requests, requests * INPUT, requests * output])
    this.even()
  }

  /** That the journal adds up to the live balances. */
  even() {
    const { missing, differ } = replay(this.gate)
    assert.deepEqual({ missing, differ }, { missing: 0, differ: [] })
  }
}

/** An address at which nobody listens any more. */
export async function closed() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return `http://127.0.0.1:${port}/v1`
}
