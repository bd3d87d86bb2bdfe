// Waiting for a turn, and what becomes of the place when somebody stops waiting.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { QueueRefused, Refused, Scheduler, Usage } from 'quota-node'
import { ACME, BLUE, pooled, request, stage, until, waits } from './common.mjs'
import { collected } from './leaks/collected.mjs'

const USAGE = Usage.tokens(1, 1)

test('what need not wait is there at once', async () => {
  const { gate } = stage()
  const lease = await gate.acquire(ACME, request())
  assert.equal(lease.waitedMs, 0)
  lease.cancel()
  await assert.rejects(gate.acquire(ACME, request({ model: 'other' })), (error) => {
    assert.ok(error instanceof Refused)
    assert.equal(error.code, 'model_not_allowed')
    assert.equal(error.refusal.reason, error.code)
    return true
  })
})

test('a turn wakes who waits', async () => {
  const { gate, clock } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const second = gate.acquire(BLUE, pooled())
  await waits(gate, 1)
  clock.advance(250)
  first.settle(USAGE)
  const lease = await second
  assert.equal(lease.waitedMs, 250)
  lease.cancel()
})

test('those that wait go in their order', async () => {
  const { gate } = stage()
  let lease = gate.admit(BLUE, pooled()).granted()
  const order = []
  const all = [1, 2, 3].map(async (number) => {
    const mine = await gate.acquire(BLUE, pooled())
    order.push(number)
    mine.settle(USAGE)
  })
  await waits(gate, 3)
  lease.settle(USAGE)
  await Promise.all(all)
  assert.deepEqual(order, [1, 2, 3])
})

test('a signal gives the place up', async () => {
  const { gate } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const controller = new AbortController()
  const second = gate.acquire(BLUE, pooled(), { signal: controller.signal })
  await waits(gate, 1)
  const why = new Error('enough')
  controller.abort(why)
  await assert.rejects(second, why)
  assert.equal(gate.poolLoad('h200').waiting, 0)
  const { signal } = controller
  await assert.rejects(gate.acquire(BLUE, pooled(), { signal }), why)
  await assert.rejects(gate.acquire(BLUE, pooled(), { signal: AbortSignal.timeout(5) }), { name: 'TimeoutError' })
  await assert.rejects(gate.acquire(BLUE, pooled(), { timeoutMs: 5 }), { name: 'TimeoutError' })
  await assert.rejects(gate.acquire(BLUE, pooled(), { timeoutMs: '5' }), TypeError)
  assert.deepEqual(gate.poolLoad('h200'), { inFlight: 1, waiting: 0 })
  first.settle(USAGE)
  assert.deepEqual(gate.poolLoad('h200'), { inFlight: 0, waiting: 0 })
})

test('a turn that comes as somebody stops goes to the next', async () => {
  const { gate } = stage()
  for (let time = 0; time < 200; time++) {
    const first = gate.admit(BLUE, pooled()).granted()
    const controller = new AbortController()
    const second = gate.acquire(BLUE, pooled(), { signal: controller.signal })
    // In one tick: the turn has come, and the promise of it can't have run.
    first.settle(USAGE)
    controller.abort()
    await assert.rejects(second, { name: 'AbortError' })
    assert.deepEqual(gate.poolLoad('h200'), { inFlight: 0, waiting: 0 })
  }
})

test('nothing of a signal is kept once the wait is over', async () => {
  const { gate } = stage()
  const { signal } = new AbortController()
  let listeners = 0
  const watched = {
    get aborted() {
      return signal.aborted
    },
    throwIfAborted: () => signal.throwIfAborted(),
    addEventListener: (...args) => ((listeners += 1), signal.addEventListener(...args)),
    removeEventListener: (...args) => ((listeners -= 1), signal.removeEventListener(...args)),
  }
  const first = await gate.acquire(BLUE, pooled(), { signal: watched })
  const second = gate.acquire(BLUE, pooled(), { signal: watched })
  await waits(gate, 1)
  first.settle(USAGE)
  ;(await second).cancel()
  assert.equal(listeners, 0)
})

test('a decision that waits is asked again, awaited, or left', async () => {
  const { gate } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const decision = gate.admit(BLUE, pooled())
  assert.equal(decision.action, 'queue')
  assert.deepEqual([decision.isDue, decision.lane, decision.pool], [false, 'interactive', 'h200'])
  assert.throws(() => decision.granted(), Refused)
  const again = decision.again()
  assert.equal(again.action, 'queue')
  assert.throws(() => decision.again(), { code: 'place_left' })
  const left = gate.admit(BLUE, pooled())
  left.leave()
  assert.throws(() => left.again(), { code: 'place_left' })
  const waited = again.wait()
  first.settle(USAGE)
  ;(await waited).cancel()
})

test('of two that wait in one place one gets it', async () => {
  const { gate } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const decision = gate.admit(BLUE, pooled())
  const both = Promise.allSettled([decision.wait(), decision.wait()])
  await waits(gate, 1)
  first.settle(USAGE)
  const [got, lost] = (await both).sort((one) => (one.status === 'fulfilled' ? -1 : 1))
  got.value.cancel()
  assert.equal(lost.reason.code, 'place_left')
})

test('leases that end on this thread and waits that time out on another meet in no lock', async () => {
  const { gate, clock } = stage()
  const keeper = gate.keeper({ intervalMs: 1 })
  let timedOut = 0
  try {
    const end = performance.now() + 500
    const work = async (number) => {
      while (performance.now() < end) {
        const timeoutMs = number % 2 ? 3 : undefined
        const lease = await gate.acquire(BLUE, pooled(), { timeoutMs }).catch((error) => {
          if (error.code === 'queue_timeout') timedOut += 1
        })
        await new Promise(setImmediate)
        lease?.settle(USAGE)
      }
    }
    // All waits have lasted too long each time: the keeper ends them, on its thread, while this one gives turns on.
    const late = async () => {
      while (performance.now() < end) {
        clock.advance(3_600_000)
        await new Promise((resolve) => setTimeout(resolve, 2))
      }
    }
    await Promise.all([late(), ...Array.from({ length: 16 }, (_, number) => work(number))])
    assert.ok(keeper.isRunning && timedOut > 0, `${timedOut}`)
  } finally {
    keeper[Symbol.dispose]()
  }
  await until(() => gate.poolLoad('h200').inFlight === 0, 'the end of all')
  assert.deepEqual(gate.poolLoad('h200'), { inFlight: 0, waiting: 0 })
})

test('a keeper ends waits that have lasted too long', async () => {
  const { gate, clock } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const keeper = gate.keeper({ intervalMs: 5 })
  const second = gate.acquire(BLUE, pooled())
  await waits(gate, 1)
  clock.advance(3_600_000)
  await assert.rejects(second, { code: 'queue_timeout' })
  keeper.stop()
  keeper.stop()
  assert.equal(keeper.isRunning, false)
  first[Symbol.dispose]()
})

test('a keeper sweeps until it is stopped, also where nobody has it', async () => {
  const { gate, clock } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const keeper = new WeakRef(gate.keeper({ intervalMs: 1 }))
  await collected()
  const second = gate.acquire(BLUE, pooled())
  clock.advance(3_600_000)
  await assert.rejects(second, { code: 'queue_timeout' })
  keeper.deref().stop()
  await collected()
  assert.equal(keeper.deref(), undefined)
  first[Symbol.dispose]()
})

test('who waits for the thread that tells waits of their end is not waited for by it', () => {
  // The keeper tells fifty waits of their end while this thread's loop gets no turn, and this thread waits for the keeper's. A
  // waker that asked for JavaScript, or waited for anything that this thread has, would wait for good; so would the process.
  const program = `
import { BLUE, pooled, stage } from './common.mjs'
import { collected } from './leaks/collected.mjs'
for (let round = 0; round < 20; round++) {
  const { gate, clock } = stage()
  const first = gate.admit(BLUE, pooled()).granted()
  const waits = Array.from({ length: 50 }, () => gate.acquire(BLUE, pooled()).catch((error) => error.code))
  clock.advance(3_600_000)
  const keeper = gate.keeper({ intervalMs: 1 })
  const end = performance.now() + 10_000
  while (gate.poolLoad('h200').waiting > 0) if (performance.now() > end) throw new Error('the keeper ends no wait')
  keeper.stop()
  for (const code of await Promise.all(waits)) if (code !== 'queue_timeout') throw new Error(code)
  first[Symbol.dispose]()
}
console.log('end')`
  const cwd = fileURLToPath(new URL('.', import.meta.url))
  const args = ['--input-type=module', '--eval', program]
  const { error, stdout, stderr } = spawnSync(process.execPath, args, { cwd, encoding: 'utf8', timeout: 60_000 })
  assert.deepEqual([error, stdout], [undefined, 'end\n'], stderr)
})

test('a place of a scheduler is awaited, too', async () => {
  const scheduler = new Scheduler({ capacity: 1, lanes: [{ name: 'default', maxQueued: 2 }] })
  const arrive = (nowNs) => scheduler.arrive({ tenant: 'acme', inputTokens: 10, nowNs })
  const first = await arrive(0).wait()
  const second = arrive(0).wait()
  first.servedAsAsked({ nowNs: 5 })
  const turn = await second
  const third = arrive(6)
  await assert.rejects(third.wait({ timeoutMs: 1 }), { name: 'TimeoutError' })
  assert.equal(third.tryTurn(), null)
  const [, , refused] = [arrive(7), arrive(7), () => arrive(7)]
  assert.throws(refused, (error) => error instanceof QueueRefused && error.code === 'queue_full')
  assert.equal(turn.unknown({ nowNs: 8 }), true)
  assert.equal(turn.unknown({ nowNs: 8 }), false)
})
