// What is run thousands of times to see whether anything is left of it: each kind of object, and each way that a request goes.
// `node paths.mjs <path>` runs one of them, with an addon that counts what it allocates, and writes what a turn of each stretch
// left behind where it never stopped to grow.

import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import {
  Calendar,
  FixedPool,
  Gate,
  Outcome,
  Policy,
  Price,
  Principal,
  Refusal,
  ReportedPool,
  Request,
  Scheduler,
  StreamReader,
  UpstreamError,
  UpstreamLimits,
  Usage,
  countTokens,
} from 'quota-node'
import { ManualClock, SimulatedPool } from 'quota-node/testing'
import { collected } from './collected.mjs'

/** Turns of a stretch. */
const TURNS = 5000
/** The most stretches. */
const STRETCHES = 12
/** After so many turns what they left is collected. */
const APART = 1000
/** What a turn may leave of the addon's blocks, and a stretch of their bytes and of V8's objects, of which the smallest takes 24. */
const MOST = { blocks: 0.5, bytes: 8 * TURNS, objects: 8 * TURNS }

const require = createRequire(import.meta.url)

const DOCUMENT = {
  models: {
    m: { pool: 'h200', price: { input: '0.5', output: 2 } },
    plain: { price: { input: '0.1', output: '0.4' } },
    none: {},
  },
  queues: { chat: { max_wait_ms: 3000 } },
  tenants: {
    acme: {
      rpm: { hard: 1e9, soft: 1 },
      tpm: 1e12,
      models: { m: {}, plain: { max_inflight: { hard: 5000, alert_percent: 1 } }, none: { rpm: 1 } },
    },
  },
}
const BODY = { model: 'm', max_tokens: 50, messages: [{ role: 'user', content: 'Name three rivers.' }] }
const CHUNKS = [
  'data: {"choices":[{"delta":{"content":"Rhine"}}]}\n\n',
  'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
].map((text) => Buffer.from(text))
const REPORT = { prompt_tokens: 3, completion_tokens: 1 }

const who = new Principal({ tenant: 'acme' })
const usage = Usage.tokens(1, 1)
const policy = Policy.fromObject(DOCUMENT)
const request = (options) => new Request({ model: 'plain', inputTokens: 10, maxOutputTokens: 50, ...options })
const [plain, pooled] = [request(), request({ model: 'm' })]

/** A gate that takes little memory, whose pool runs one request at a time. */
function small(options) {
  const pools = { h200: new FixedPool({ replicas: 1, maxRunning: 1 }) }
  return new Gate(policy, { maxRows: 64, maxOpenLeases: 4096, pools, ...options })
}

const admitted = (gate, request) => gate.admit(who, request).granted()
const fails = async (act) => {
  try {
    await act()
  } catch (error) {
    return error
  }
  throw new Error('it did not fail')
}

/** What the host plugs in, all in one: it has the gate, which has it. */
class Host {
  constructor(act = () => {}) {
    this.told = 0
    const tell = () => {
      this.told++
      act(this)
    }
    this.gate = small({
      journal: { push: tell },
      estimator: () => (tell(), { expected: 3, reserve: 4 }),
      pools: { h200: { load: () => (tell(), [{ maxRunning: 1 }]), reports: () => false } },
    })
    this.subscription = this.gate.onAlert(tell)
  }

  turn() {
    admitted(this.gate, request({ inputTokens: undefined, text: 'Name three rivers.' })).settle(usage)
    const decision = this.gate.admit(who, pooled)
    decision.lease?.cancel()
    decision.leave()
    this.gate.sweep()
  }
}

/** Runs a turn that takes as long as `part` short ones for a part of the times; how many it was. */
const each = (part, turn) => async (turns) => {
  const many = Math.ceil(turns / part)
  for (let at = 1; at <= many; at++) {
    await turn(at)
    if (at % Math.ceil(APART / part) === 0) await collected()
  }
  return many
}

/** One path after the other has a gate of its own for the whole stretch, so that what it keeps goes with it. */
const gated = (part, of) => async (turns) => each(part, await of(small()))(turns)

/** It goes in the middle of everything. */
const WORKER = `
const { FixedPool, Gate, Policy, Principal, Request } = require(require('node:worker_threads').workerData)
const policy = Policy.fromYaml('{models: {m: {pool: p}}, tenants: {acme: {rpm: 1000000, models: [m]}}}')
const pools = { p: new FixedPool({ replicas: 1, maxRunning: 1 }) }
const gate = new Gate(policy, { pools, maxRows: 64, journal: { push() {} } })
const [who, request] = [new Principal({ tenant: 'acme' }), new Request({ model: 'm', inputTokens: 1 })]
gate.keeper()
globalThis.kept = gate.admit(who, request).lease
gate.acquire(who, request).catch(() => {})
process.exit(0)`

const lost = []

export const paths = {
  gates: each(20, () => {
    const gate = small()
    admitted(gate, plain).settle(usage)
    admitted(gate, pooled)
    gate.admit(who, pooled)
  }),

  policies: each(10, async () => {
    Policy.fromObject(DOCUMENT).limits({ tenant: 'acme' })
    Policy.fromYaml('tenants: {a: {rpm: 5}}')
    await fails(() => Policy.fromYaml('tenants: {a: {rmp: 5}}'))
  }),

  bodies: each(3, async (turn) => {
    Request.fromBody('openai_chat', BODY, { id: `r${turn}` }).texts
    await fails(() => Request.fromBody('openai_chat', { model: 5 }))
    await fails(() => new Request({ model: 5 }))
  }),

  settled: gated(2, (gate) => () => {
    const receipt = admitted(gate, plain).settle(usage)
    if (receipt.charged.tokens !== 2 || !receipt.usage.equals(usage)) throw new Error('charged otherwise')
    admitted(gate, plain).settle(REPORT).costUsd
    admitted(gate, plain).settle(JSON.stringify(REPORT))
  }),

  'ended otherwise': gated(3, (gate) => async (turn) => {
    admitted(gate, plain).cancel()
    const lease = admitted(gate, plain)
    lease.unresolved('no_usage', { seen: usage })
    lease.settle(usage)
    admitted(gate, plain).finish(Outcome.ofAnswer(429, { error: {} }))
    const named = admitted(gate, request({ id: `r${turn}` }))
    admitted(gate, request({ id: `r${turn}` }))
    gate.finalize(usage, { requestId: `r${turn}` })
    await fails(() => named.settle(Usage.tokens(5, 5)))
  }),

  'lost and left': gated(3, (gate) => async () => {
    gate.admit(who, plain)
    admitted(gate, plain)[Symbol.dispose]()
    await gate.run(who, plain, async () => REPORT)
    await fails(() => gate.run(who, plain, () => Promise.reject(Object.assign(new Error('no'), { status: 500 }))))
  }),

  refused: gated(4, (gate) => {
    const [strange, over] = [request({ model: 'other' }), request({ model: 'none' })]
    gate.admit(who, over)
    return async () => {
      for (const asked of [strange, over]) {
        const { refusal } = gate.admit(who, asked)
        refusal.response('openai')
        Refusal.fromObject(refusal.toObject())
        await fails(() => gate.acquire(who, asked))
        gate.preview(who, asked)
      }
    }
  }),

  streams: gated(4, (gate) => {
    const asked = request({ stream: true })
    return async () => {
      const stream = admitted(gate, asked).stream('openai_chat', { stripUsage: true })
      for await (const bytes of stream.pipe(CHUNKS)) bytes.length
      if (stream.receipt.charged.tokens !== 5) throw new Error('charged otherwise')
      // One that breaks off, and one that nobody has any more.
      for await (const bytes of admitted(gate, asked).stream('openai_chat').pipe(CHUNKS)) break
      admitted(gate, asked).stream('openai_chat').feed(CHUNKS[0].subarray(0, 20))
    }
  }),

  granted: gated(4, (gate) => async () => {
    const first = await gate.acquire(who, pooled)
    const [second, third] = [gate.acquire(who, pooled), gate.acquire(who, pooled)]
    first.settle(usage)
    ;(await second).cancel()
    ;(await third).cancel()
  }),

  aborted: gated(8, (gate) => async () => {
    const first = await gate.acquire(who, pooled)
    const [controller, both] = [new AbortController(), new AbortController()]
    const { signal } = controller
    const [waits, due] = [gate.acquire(who, pooled, { signal }), gate.acquire(who, pooled, { signal: both.signal })]
    const decision = gate.admit(who, pooled)
    decision.leave()
    controller.abort()
    await fails(() => waits)
    // Its turn comes in the same moment.
    first.settle(usage)
    both.abort()
    await fails(() => due)
  }),

  'timed out': async (turns) => {
    const clock = new ManualClock()
    const gate = small({ clock })
    const first = admitted(gate, pooled)
    const many = await each(20, async () => {
      await fails(() => gate.acquire(who, pooled, { timeoutMs: 0 }))
      const late = gate.acquire(who, pooled)
      clock.advance(3001)
      gate.sweep()
      await fails(() => late)
      first.renew()
    })(turns)
    first.cancel()
    return many
  },

  'called back': async (turns) => {
    const host = new Host()
    return each(6, () => host.turn())(turns)
  },

  'called back, and calls': async (turns) => {
    let inside = false
    const host = new Host(({ gate }) => {
      if (!gate || inside) return
      inside = true
      gate.balances(who)
      admitted(gate, plain).cancel()
      inside = false
    })
    return each(12, () => host.turn())(turns)
  },

  'called back, and throws': async (turns) => {
    const thrown = () => {}
    process.on('uncaughtException', thrown)
    const host = new Host(() => {
      throw new Error('mine')
    })
    const many = await each(12, async () => {
      host.turn()
      await new Promise(setImmediate)
    })(turns)
    process.off('uncaughtException', thrown)
    return many
  },

  'hosts that have their gate': each(30, (turn) => {
    const host = new Host()
    host.turn()
    if (turn % 4 === 0) host.subscription.stop()
    if (turn % 8 === 0) host.keeper = host.gate.keeper({ intervalMs: 60_000 })
    // Its end is told while all of it goes.
    if (turn % 3 === 0) admitted(host.gate, plain)
  }),

  reloads: async (turns) => {
    const clock = new ManualClock()
    const gate = small({ clock })
    const both = [policy, Policy.fromYaml('tenants: {acme: {rpm: 1000000000, models: [plain]}}')]
    return each(6, (turn) => {
      const lease = admitted(gate, plain)
      gate.reload(both[turn % 2])
      lease.settle(usage)
      clock.advance(1000)
      gate.sweep()
    })(turns)
  },

  'keepers and subscriptions': gated(20, (gate) => () => {
    gate.keeper({ intervalMs: 60_000 }).stop()
    gate.onAlert(() => gate).stop()
  }),

  keys: each(6, async () => {
    const gate = small()
    for (let turn = 0; turn < 4; turn++) {
      const issued = gate.issueKey({ tenant: 'acme', author: 'ops', limits: { rpm: 1e6 } })
      gate.authenticate(issued.secret).tenant
      gate.rotateKey('acme', issued.id, { author: 'ops', overlapMs: 0 })
      await fails(() => gate.authenticate(issued.secret))
      gate.keys('acme')
      gate.revokeKey('acme', issued.id, { author: 'ops' })
    }
  }),

  freezes: gated(3, (gate) => () => {
    gate.freeze({ tenant: 'acme', author: 'ops', reason: 'a test' })
    if (gate.frozen().length !== 1 || gate.admit(who, plain).action !== 'reject') throw new Error('not frozen')
    gate.thaw({ tenant: 'acme', author: 'ops' })
  }),

  looks: gated(30, (gate) => {
    const lease = admitted(gate, request({ id: 'r' }))
    return () => {
      gate.balances(who).map((balance) => balance.toObject())
      gate.headers(who)
      gate.snapshot()
      gate.metrics()
      gate.journal()
      gate.explain('r')
      gate.recent('acme', { lastMs: 1e9 })
      JSON.stringify(lease)
      gate.unresolved()
    }
  }),

  readers: each(6, async () => {
    const reader = new StreamReader('openai_chat')
    reader.feed(CHUNKS[0])
    reader.finish()
    UpstreamLimits.read({ 'retry-after': '5' })
    UpstreamError.read(429, { error: { code: 'x' } })
    new Price({ input: 1, output: 2 }).cost(usage)
    countTokens('Name three rivers.')
    new Calendar('day', 'UTC')
    await fails(() => Usage.read({ prompt_tokens: 1, completion_tokens: 'many' }))
  }),

  pools: async (turns) => {
    const clock = new ManualClock()
    const reported = new ReportedPool({ replicas: 1, ttlMs: 1000, maxRunning: 1 })
    const simulated = new SimulatedPool(clock, { replicas: 1, maxRunning: 1 })
    const gates = [small({ pools: { h200: reported } }), small({ clock, pools: { h200: simulated } })]
    return each(8, (turn) => {
      gates[0].report('h200', 0, { running: 1 })
      simulated.submit(turn, { inputTokens: 1, outputTokens: 1 })
      clock.advance(60_000)
      simulated.advance()
      for (const gate of gates) gate.sweep() + gate.poolLoad('h200').waiting
    })(turns)
  },

  schedulers: async (turns) => {
    const scheduler = new Scheduler({ capacity: 1 })
    const arrive = (tenant, nowNs) => scheduler.arrive({ tenant, nowNs })
    return each(10, async (nowNs) => {
      const first = await arrive('a', nowNs).wait()
      const second = arrive('b', nowNs).wait()
      const controller = new AbortController()
      const third = arrive('c', nowNs).wait({ signal: controller.signal })
      controller.abort()
      first.servedAsAsked({ nowNs })
      const place = (await second).putBack('scope', { nowNs })
      scheduler.released('scope', { nowNs })
      ;(await place.wait()).unknown({ nowNs })
      await fails(() => third)
      new Scheduler({ capacity: 1 }).arrive({ tenant: 'a', nowNs })
    })(turns)
  },

  workers: each(1000, async () => {
    const worker = new Worker(WORKER, { eval: true, workerData: require.resolve('quota-node') })
    await new Promise((resolve, reject) => worker.once('exit', resolve).once('error', reject))
  }),

  // The check itself: an object of V8's, and one of the addon's.
  'lost objects': each(1, () => void lost.push({})),
  'lost blocks': each(20, () => void lost.push(new Principal({ tenant: 'acme' }))),
}

async function held() {
  await collected()
  return { ...native._allocated(), objects: process.memoryUsage().heapUsed }
}

/** What each stretch left behind, where no two in a row left nothing. */
async function leftBy(path) {
  const found = []
  await path(TURNS)
  let [before, flat] = [await held(), 0]
  while (found.length < STRETCHES) {
    const turns = await path(TURNS)
    const after = await held()
    const left = {
      blocks: (after.blocks - before.blocks) / turns,
      bytes: after.bytes - before.bytes,
      objects: after.objects - before.objects,
    }
    found.push(left)
    flat = Object.entries(left).every(([what, most]) => most < MOST[what]) ? flat + 1 : 0
    if (flat === 2) return []
    before = after
  }
  return found
}

const [, , asked] = process.argv
const native = require(join(dirname(require.resolve('quota-node/package.json')), 'lib', 'native.cjs'))
if (asked in paths) console.log(JSON.stringify(await leftBy(paths[asked])))
