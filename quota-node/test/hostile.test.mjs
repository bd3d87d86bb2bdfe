// What nobody means to do: values of wrong types, and getting back into the gate out of what it calls.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import {
  Calendar,
  FixedPool,
  Gate,
  Lease,
  Outcome,
  Policy,
  Price,
  Principal,
  Request,
  Scheduler,
  StreamReader,
  Turn,
  Usage,
  countTokens,
  priorityHint,
} from 'quota-node'
import { ManualClock } from 'quota-node/testing'
import { ACME, BLUE, DOCUMENT, pooled, request, stage, until, waits } from './common.mjs'

const SECRET = 'sk-very-secret'

test('a wrong type is a TypeError that says where and what is wanted', () => {
  const { gate } = stage()
  const lease = gate.admit(ACME, request()).granted()
  const calls = [
    [() => new Principal({ tenant: 5 }), /^tenant: a string is wanted, not number$/],
    [() => new Principal({}), /^tenant is wanted$/],
    [() => new Principal({ tenant: 'a', namesUsers: 1 }), /^namesUsers: a boolean is wanted/],
    [() => new Request({ model: 'm', inputTokens: null }), /^inputTokens: a whole number is wanted, not null$/],
    [() => new Request({ model: 'm', stream: 'yes' }), /^stream: a boolean is wanted/],
    [() => new FixedPool({ replicas: 1.5, maxRunning: 1 }), /^replicas: a whole number is wanted, not 1.5/],
    [() => new FixedPool({ replicas: 65536, maxRunning: 1 }), /^replicas: .* it is from 0 to 65535$/],
    [() => new Scheduler({ capacity: 1, lanes: [{ name: 'a', floorPercent: -1 }] }), /^floorPercent: a whole number/],
    [() => new Scheduler({ capacity: 1, lanes: 5 }), /^lanes: an array is wanted/],
    [() => new Scheduler({ capacity: 1 }).arrive({ tenant: 'a', nowNs: 0, weight: NaN }), /^weight: a whole number/],
    [() => gate.admit(), /^admit: a Principal is wanted$/],
    [() => gate.admit(ACME), /^admit: a Request is wanted$/],
    [() => gate.admit(request(), ACME), /^admit: a Principal is wanted$/],
    [() => gate.admit(Object.create(Principal.prototype), request()), /a Principal is wanted/],
    [() => gate.admit(new Proxy(ACME, {}), request()), /a Principal is wanted/],
    [() => gate.authenticate([SECRET]), /^authenticate: a string is wanted, not object$/],
    [() => gate.rotateKey('acme', 'k', {}), /^author is wanted$/],
    [() => gate.report('h200', -1, {}), /^report: a whole number is wanted, not -1/],
    [() => gate.issueKey({ tenant: 'acme', author: 'ops', models: 'm' }), /^models: an array is wanted/],
    [() => gate.reload({}), /^reload: a Policy is wanted$/],
    [() => new Gate({}), /^Gate: a Policy is wanted$/],
    [() => Usage.tokens(1n, 1), /^tokens: a whole number is wanted, not a BigInt/],
    [() => new Usage({ serviceTier: 5 }), /^serviceTier: a string is wanted/],
    [() => new Usage({}).equals(5), /^equals: a Usage is wanted$/],
    [() => Outcome.ofAnswer(200.5), /a whole number is wanted, not 200.5/],
    [() => Policy.fromFile(new URL('file:///policy.yaml')), /^fromFile: a string is wanted, not object$/],
    [() => new StreamReader('auto').feed('text'), /^feed: a Uint8Array is wanted$/],
    [() => new StreamReader('auto').feed(new Uint16Array(2)), /^feed: a Uint8Array is wanted$/],
    [() => new ManualClock(5), /a string is wanted, not number$/],
    [() => lease.extend(-1), /^extend: a whole number is wanted, not -1/],
    [() => lease.unresolved(5), /a string is wanted, not number$/],
    [() => lease.settle({ prompt_tokens: 1 }, { dialect: 5 }), /a string is wanted, not number$/],
    [() => countTokens(5), /^countTokens: a string is wanted, not number$/],
    [() => priorityHint('vllm', 300), /^priorityHint: a whole number is wanted, not 300/],
    [() => Principal({ tenant: 'a' }), /^Principal is made with `new`$/],
    [() => Price({ input: 1, output: 1 }), /^Price is made with `new`$/],
    [() => new Lease(), /^Lease is not made with `new`/],
    [() => new Lease(0, 0), /^Lease is not made with `new`/],
    [() => new Turn(), /^Turn is not made with `new`$/],
  ]
  for (const [call, message] of calls) {
    assert.throws(call, (error) => {
      assert.ok(error instanceof TypeError, `${call}: ${error.stack}`)
      assert.match(error.message, message, `${call}`)
      assert.ok(!inspect(error).includes(SECRET))
      return true
    })
  }
  lease.cancel()
  assert.equal(globalThis.tenant, undefined)
})

test('what a getter or a proxy throws is thrown', () => {
  const thrown = new RangeError('mine')
  const throws = () => {
    throw thrown
  }
  const trap = new Proxy({}, { get: throws, has: throws })
  assert.throws(() => new Principal(trap), thrown)
  assert.throws(() => new Request({ get model() { return throws() } }), thrown)
  assert.throws(() => Usage.read(trap), (error) => error instanceof TypeError && error.cause === thrown)
})

test('a text that is cut in the middle of a character is read as it would be sent', () => {
  const read = (content) => Request.fromBody('openai_chat', { model: 'm', messages: [{ role: 'user', content }] }).texts
  assert.deepEqual(read('a\ud83d'), ['a\ufffd'])
  assert.deepEqual(read('\udc4db'), ['\ufffdb'])
  assert.deepEqual(read('\ud83d\udc4d \\ud83d \\\ud83d "\n'), ['\ud83d\udc4d \\ud83d \\\ufffd "\n'])
  assert.equal(new Principal({ tenant: 'a\ud800' }).tenant, 'a\ufffd')
})

test('bytes of buffers that went or shrank are none', () => {
  const reader = new StreamReader('openai_chat')
  const gone = new ArrayBuffer(8)
  const bytes = new Uint8Array(gone)
  structuredClone(gone, { transfer: [gone] })
  assert.equal(reader.feed(bytes).length, 0)
  const shrinks = new ArrayBuffer(8, { maxByteLength: 16 })
  const [whole, part] = [new Uint8Array(shrinks), new Uint8Array(shrinks, 4, 4)]
  shrinks.resize(2)
  assert.deepEqual([reader.feed(whole).length, reader.feed(part).length], [2, 0])
  assert.equal(reader.feed(new Uint8Array(new SharedArrayBuffer(3))).length, 3)
})

/** A gate whose journal calls `hook` with each event. */
function hooked() {
  const told = { hook: () => {} }
  const journal = { push: (entry) => told.hook(entry.event) }
  return { told, ...stage({ journal, estimator: () => (told.hook('estimate'), 5) }) }
}

const CHUNK = Buffer.from('data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n')

test('a journal that gets at the lease whose stream is ending gets an error', () => {
  const { gate, told } = hooked()
  const lease = gate.admit(ACME, request({ stream: true })).granted()
  const stream = lease.stream('openai_chat')
  const codes = []
  told.hook = (event) => {
    if (event !== 'settled') return
    for (const act of [() => lease.id, () => stream.finish(), () => stream.feed(CHUNK), () => lease.cancel(), () => lease[Symbol.dispose]()]) {
      try {
        act()
      } catch (error) {
        codes.push(error.code)
      }
    }
  }
  stream.feed(CHUNK)
  assert.equal(stream.finish().outcome, 'settled')
  assert.deepEqual(codes, Array(5).fill('lease_busy'))
  assert.equal(stream.receipt.charged.tokens, 2)
})

test('a journal may ask for a lease, end it again, and decide', () => {
  const { gate, told } = hooked()
  const seen = []
  const first = gate.admit(ACME, request()).granted()
  told.hook = (event) => {
    if (event !== 'settled' || seen.length > 0) return
    seen.push(first.model, first.settle(Usage.tokens(1, 1)).repeat)
    gate.reload(Policy.fromObject(DOCUMENT))
    gate.admit(ACME, request()).granted().settle(Usage.tokens(1, 1))
    assert.throws(() => first.stream(), { code: 'lease_busy' })
  }
  assert.equal(first.settle(Usage.tokens(1, 1)).repeat, false)
  assert.deepEqual(seen, ['m', true])
})

test('what is called may leave the place that is being asked for', () => {
  const { gate, told } = hooked()
  const first = gate.admit(BLUE, pooled()).granted()
  const decision = gate.admit(BLUE, new Request({ model: 'pooled', text: 'x', maxOutputTokens: 5 }))
  first.settle(Usage.tokens(1, 1))
  told.hook = () => decision.leave()
  const again = decision.again()
  assert.equal(again.action, 'allow')
  again.lease.cancel()
  assert.deepEqual(gate.poolLoad('h200'), { inFlight: 0, waiting: 0 })
})

test('an estimator that asks the gate which asks the estimator comes to an end', () => {
  let [depth, deepest] = [0, 0]
  const text = new Request({ model: 'm', text: 'x', maxOutputTokens: 5 })
  const { gate } = stage({
    estimator: () => {
      deepest = Math.max(deepest, (depth += 1))
      gate.admit(ACME, text).granted().cancel()
      depth -= 1
      return 5
    },
  })
  gate.admit(ACME, text).granted().cancel()
  assert.ok(deepest > 1 && deepest < 100, `${deepest}`)
})

test('a thousand waits share one signal without a warning, and leave nothing of them with it', async () => {
  const { gate } = stage()
  const warnings = []
  const warn = (warning) => warnings.push(warning.name)
  process.on('warning', warn)
  const controller = new AbortController()
  const { signal } = controller
  let listeners = 0
  const watched = Object.create(signal, {
    aborted: { get: () => signal.aborted },
    reason: { get: () => signal.reason },
    throwIfAborted: { value: () => signal.throwIfAborted() },
    addEventListener: { value: (...args) => ((listeners += 1), signal.addEventListener(...args)) },
    removeEventListener: { value: (...args) => ((listeners -= 1), signal.removeEventListener(...args)) },
  })
  const first = gate.admit(BLUE, pooled()).granted()
  const all = Array.from({ length: 1000 }, () => gate.acquire(BLUE, pooled(), { signal: watched }))
  await waits(gate, 1000)
  assert.equal(listeners, 1)
  first.settle(Usage.tokens(1, 1))
  ;(await all[0]).cancel()
  controller.abort()
  const ends = await Promise.allSettled(all)
  const aborted = ends.filter((end) => end.status === 'rejected')
  assert.ok(aborted.every((end) => end.reason.name === 'AbortError'))
  for (const end of ends.slice(1)) end.value?.cancel()
  assert.deepEqual([listeners, gate.poolLoad('h200')], [0, { inFlight: 0, waiting: 0 }])
  await new Promise(setImmediate)
  process.off('warning', warn)
  assert.deepEqual(warnings, [])
})

test('a time-out is looked at before anything is decided, and may be as long as one likes', async () => {
  const { gate } = stage()
  for (const timeoutMs of [NaN, -1, '5', null]) {
    await assert.rejects(gate.acquire(ACME, request(), { timeoutMs }), TypeError)
  }
  assert.equal(gate.balances(ACME)[0].used, 0)
  const first = gate.admit(BLUE, pooled()).granted()
  await assert.rejects(gate.acquire(BLUE, pooled(), { timeoutMs: 0 }), { name: 'TimeoutError' })
  const long = [2 ** 31, 1e300, Infinity].map((timeoutMs) => gate.acquire(BLUE, pooled(), { timeoutMs }))
  await waits(gate, 3)
  // What is too long for a timer of Node's would fire at once.
  await new Promise((resolve) => setTimeout(resolve, 5))
  assert.equal(gate.poolLoad('h200').waiting, 3)
  first.cancel()
  for (const wait of long) (await wait).cancel()
})

test('a signal that aborts in what the gate calls ends the wait', async () => {
  const { gate, told } = hooked()
  const controller = new AbortController()
  told.hook = () => controller.abort()
  const first = gate.admit(BLUE, pooled()).granted()
  await assert.rejects(gate.acquire(BLUE, pooled(), { signal: controller.signal }), { name: 'AbortError' })
  assert.equal(gate.poolLoad('h200').waiting, 0)
  first.cancel()
})

test('shown and written, a lease has its properties, and the rest nothing', () => {
  const { gate } = stage()
  const lease = gate.admit(ACME, request({ id: 'r1' })).granted()
  assert.match(inspect(lease), /^Lease \{[^]*requestId: 'r1'/)
  assert.equal(JSON.parse(JSON.stringify(lease)).requestId, 'r1')
  assert.match(inspect(lease.stream()), /^Stream \{[^]*outputSoFar: 0/)
  assert.match(inspect(lease.cancel()), /^Receipt \{[^]*outcome: 'cancelled'/)
  assert.equal(inspect(new Calendar('day', 'UTC')), 'Calendar {}')
})

test('memory does not grow with the number of leases', { timeout: 120_000 }, async () => {
  const limits = { rpm: 1e9, tpm: 1e12, models: ['m'] }
  const gate = new Gate(Policy.fromObject({ tenants: { acme: limits } }))
  const usage = Usage.tokens(1, 1)
  const asked = request()
  const turn = async (times) => {
    for (let time = 0; time < times; time++) {
      gate.admit(ACME, asked).lease.settle(usage)
      if (time % 100 === 99) await new Promise(setImmediate)
    }
    return process.memoryUsage.rss()
  }
  // The journal and what is remembered of ended leases are full by then.
  const before = await turn(200_000)
  const after = await turn(200_000)
  // Leases that were kept would be some 280 MB.
  assert.ok(after - before < 40e6, `${before} and then ${after}`)
})
