// What the package offers, as its types say it.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { inspect } from 'node:util'
import {
  EndError,
  Gate,
  InputError,
  KeyActError,
  Outcome,
  Policy,
  PolicyError,
  Principal,
  QuotaError,
  REASONS,
  Refused,
  ReportedPool,
  Request,
  RequestError,
  StreamReader,
  UpstreamLimits,
  Usage,
  UsageError,
} from 'quota-node'
import { ManualClock, SimulatedPool, replay } from 'quota-node/testing'
import { ACME, BLUE, DOCUMENT, pooled, request, stage, until } from './common.mjs'

const REPORT = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 }

test('a request is admitted, sent and settled', () => {
  const { gate } = stage()
  const decision = gate.admit(ACME, request({ id: 'r1' }))
  assert.deepEqual([decision.action, decision.reason, decision.refusal], ['allow', null, null])
  const { lease } = decision
  assert.deepEqual([lease.model, lease.lane, lease.inputTokens, lease.maxOutputTokens], ['m', 'interactive', 10, 50])
  assert.equal(lease.worstUsd, '0.000105')
  assert.equal(lease.sent(), true)
  const receipt = lease.settle(REPORT)
  assert.equal(receipt.costUsd, '0.000045')
  assert.deepEqual([receipt.charged.tokens, receipt.charged.usd], [30, '0.000045'])
  assert.deepEqual([receipt.outcome, receipt.late, receipt.repeat, receipt.requestId], ['settled', false, false, 'r1'])
  assert.deepEqual(replay(gate), { missing: 0, compared: 3, differ: [] })
  const events = gate.explain('r1').map((entry) => entry.event)
  assert.deepEqual(events, ['admitted', 'settled'])
})

test('a receipt is the same on every repeat, and looked up when it is asked for', () => {
  const { gate } = stage()
  const lease = gate.admit(ACME, request({ id: 'r1' })).granted()
  const unresolved = lease.unresolved('no_usage', { seen: Usage.tokens(10, 5) })
  const late = lease.settle(REPORT)
  const again = lease.settle(REPORT)
  assert.deepEqual([unresolved.outcome, unresolved.repeat], ['unresolved', false])
  assert.deepEqual([late.outcome, late.late, late.repeat], ['settled', true, false])
  assert.deepEqual({ ...again.toJSON(), repeat: false }, late.toJSON())
  assert.equal(again.repeat, true)
  assert.throws(() => lease.settle(Usage.tokens(11, 20)), (error) => {
    assert.ok(error instanceof EndError && error instanceof QuotaError)
    assert.deepEqual([error.code, error.first, error.second], ['lease_conflict', '10', '11'])
    return true
  })
  const repeated = gate.admit(ACME, request({ id: 'r1' }))
  assert.equal(repeated.refusal.receipt.costUsd, late.costUsd)
})

test('what was told stays as it was', () => {
  const document = {
    models: { m: { price: { input: '0.5', output: 2 } }, small: {} },
    tenants: { acme: { models: { m: {}, small: { max_inflight: 1 } } } },
  }
  const gate = new Gate(Policy.fromObject(document), { clock: new ManualClock() })
  const lease = gate.admit(ACME, request({ id: 'r1' })).granted()
  const unresolved = lease.unresolved('no_usage')
  const held = gate.admit(ACME, request({ model: 'small' })).granted()
  const [read, unread] = [0, 1].map(() => gate.admit(ACME, request({ model: 'small' })).refusal)
  const [late, again] = [lease.settle(REPORT), lease.settle(REPORT)]
  const over = gate.admit(ACME, request({ id: 'r1' })).refusal
  const told = () => [unresolved, late, again, over.receipt].map((receipt) => JSON.stringify(receipt))
  const [before, first] = [told(), JSON.stringify([read, read.message, read.shortages])]
  held.cancel()
  document.tenants.acme.models.small.max_inflight = 9
  document.models.m = { price: { input: 7, output: 7 } }
  gate.reload(Policy.fromObject(document))
  assert.deepEqual(told(), before)
  assert.equal(JSON.stringify([unread, unread.message, unread.shortages]), first)
  assert.deepEqual(unread.shortages, unread.shortages)
  assert.equal(unread.shortages[0].hard, 1)
})

test('a lease is ended by its id, late and from elsewhere', () => {
  const { gate } = stage()
  const [first, second] = ['r1', 'r2'].map((id) => gate.admit(ACME, request({ id })).granted())
  assert.equal(gate.finalize(REPORT, { requestId: 'r1' }).charged.tokens, 30)
  assert.equal(gate.finalize(Outcome.notRun(), { leaseId: second.id }).charged.tokens, 0)
  assert.throws(() => gate.finalize(REPORT, {}), TypeError)
  assert.throws(() => gate.finalize(REPORT, { requestId: 'r9' }), { code: 'lease_unknown' })
  assert.equal(first.settle(REPORT).repeat, true)
})

test('a scope that is left leaves the lease charged', async () => {
  const { gate } = stage()
  for (const symbol of [Symbol.dispose, Symbol.asyncDispose]) {
    const lease = gate.admit(ACME, request()).granted()
    await lease[symbol]()
    await lease[symbol]()
    assert.equal(gate.unresolved().at(-1).cause, 'dropped')
  }
  assert.equal(gate.unresolved().length, 2)
  const settled = gate.admit(ACME, request()).granted()
  settled.settle(REPORT)
  settled[Symbol.dispose]()
  assert.equal(gate.unresolved().length, 2)
})

test('a lease that is lost is unresolved', { timeout: 20_000 }, async () => {
  const { gate } = stage()
  const { setFlagsFromString } = await import('node:v8')
  const { runInNewContext } = await import('node:vm')
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc')
  ;(() => void gate.admit(ACME, request()).granted().id)()
  await until(() => (gc(), gate.unresolved().length === 1), 'the end of a lease that nobody has')
  assert.equal(gate.unresolved()[0].cause, 'dropped')
})

test('run settles what its function gives', async () => {
  const { gate } = stage()
  const answer = await gate.run(ACME, request({ id: 'r1' }), async (lease) => {
    assert.equal(lease.maxOutputTokens, 50)
    return { id: 'x', choices: [], usage: REPORT }
  })
  assert.equal(answer.id, 'x')
  assert.equal(gate.explain('r1').at(-1).event, 'settled')
  assert.equal(await gate.run(ACME, request({ id: 'r2' }), (lease) => lease.settle(REPORT).charged.tokens), 30)
  assert.equal(await gate.run(ACME, request({ id: 'r3' }), () => 'no usage'), 'no usage')
  assert.deepEqual(gate.unresolved().map(({ requestId, cause }) => [requestId, cause]), [['r3', 'no_usage']])
})

test('run ends a lease as what is thrown says', async () => {
  const { gate } = stage()
  const thrown = (fields) => () => Promise.reject(Object.assign(new Error('no'), fields))
  const ended = async (id, fields) => {
    await assert.rejects(gate.run(ACME, request({ id }), thrown(fields)), { message: 'no' })
    return gate.explain(id).at(-1).event
  }
  assert.equal(await ended('r1', { status: 429, error: { message: 'slow down' } }), 'settled')
  const { repeat, charged } = gate.finalize(Outcome.notRun(), { requestId: 'r1' })
  assert.deepEqual([repeat, charged.tokens], [true, 0])
  assert.equal(await ended('r2', {}), 'unresolved')
  assert.equal(await ended('r3', { status: 'no number' }), 'unresolved')
  const lease = gate.admit(ACME, request()).granted()
  lease.cancel()
  await assert.rejects(lease.run(() => assert.fail()), { code: 'lease_ended' })
})

test('a stream settles by its last word', async () => {
  const { gate } = stage()
  const chunk = (data) => Buffer.from(`data: ${JSON.stringify(data)}\n\n`)
  const chunks = [
    chunk({ choices: [{ delta: { content: 'Rhine' } }] }),
    chunk({ choices: [], usage: REPORT }),
    Buffer.from('data: [DONE]\n\n'),
  ]
  const lease = gate.admit(ACME, request({ stream: true })).granted()
  const stream = lease.stream('openai_chat', { stripUsage: true })
  assert.throws(() => lease.stream(), TypeError)
  const passed = []
  for await (const bytes of stream.pipe(chunks)) passed.push(bytes)
  assert.equal(passed[0], chunks[0])
  assert.equal(Buffer.concat(passed).toString(), Buffer.concat([chunks[0], chunks[2]]).toString())
  assert.equal(stream.receipt.charged.tokens, 30)
  assert.equal(stream.finish().costUsd, stream.receipt.costUsd)
  assert.equal(stream.lease, lease)

  const broken = gate.admit(ACME, request({ stream: true, id: 'broken' })).granted()
  for await (const _ of broken.stream('openai_chat').pipe(chunks)) break
  assert.equal(gate.unresolved().at(-1).requestId, 'broken')

  const reader = new StreamReader('openai_chat')
  for (const bytes of chunks) assert.deepEqual(reader.feed(bytes), bytes)
  const { outcome, done } = reader.finish()
  assert.deepEqual([outcome.usage.total, done], [30, true])
  assert.throws(() => reader.finish(), TypeError)
})

test('a lease says how it is to be run', () => {
  const document = structuredClone(DOCUMENT)
  document.models = { 'vendor/m-2': document.models.m, m: { upstream: 'vendor/m-2' }, pooled: document.models.pooled }
  const gate = new Gate(Policy.fromObject({ ...document, settings: { lease_ttl_ms: 5000 } }))
  const lease = gate.admit(ACME, request({ stream: true })).granted()
  assert.deepEqual([lease.model, lease.upstreamModel, lease.ttlMs, lease.isOpen], ['m', 'vendor/m-2', 5000, true])
  assert.equal(lease.degradation, null)
  const stream = lease.stream('openai_chat')
  assert.equal(stream.isDone, false)
  stream.feed(Buffer.from('data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'))
  assert.equal(stream.isDone, false)
  stream.feed(Buffer.from('data: [DONE]\n\n'))
  assert.equal(stream.isDone, true)
  stream.finish()
  assert.deepEqual([stream.isDone, lease.isOpen], [true, false])
})

test('a refusal answers in each manner', () => {
  const { gate } = stage()
  for (let time = 0; time < 1000; time++) gate.admit(ACME, request()).granted().cancel()
  const big = request({ maxOutputTokens: 10 ** 9 })
  const { action, reason, refusal, retryAfterMs } = gate.admit(ACME, big)
  assert.equal(action, 'reject')
  assert.deepEqual([reason, retryAfterMs], [refusal.reason, refusal.retryAfterMs])
  assert.equal(refusal.status, REASONS[reason].status)
  const { status, headers, body } = refusal.response('anthropic')
  assert.equal(status, refusal.status)
  assert.equal(body.type, 'error')
  assert.equal(typeof headers, 'object')
  assert.match(refusal.streamError(), /^data: /)
  assert.equal(refusal.response('gemini').body.error.code, refusal.status)
  assert.match(refusal.streamError('gemini'), /^data: /)
  assert.throws(() => refusal.response('cohere'), TypeError)
  assert.equal(gate.preview(ACME, big).reason, reason)
  assert.equal(gate.preview(ACME, request()).offer.worstUsd, '0.000105')
})

test('keys are issued, rotated and revoked, and their secrets not shown', () => {
  const { gate } = stage()
  const issued = gate.issueKey({ tenant: 'acme', author: 'ops', id: 'k1', user: 'ann', limits: { rpm: 1 } })
  const who = gate.authenticate(`Bearer ${issued.secret}`)
  assert.deepEqual([who.tenant, who.user, who.key], ['acme', 'ann', 'k1'])
  assert.ok(!inspect(issued).includes(issued.secret) && !JSON.stringify(issued).includes(issued.secret))
  const next = gate.rotateKey('acme', 'k1', { author: 'ops', overlapMs: 1000 })
  assert.notEqual(next.secret, issued.secret)
  assert.deepEqual(gate.keys('acme').map(({ id, state, secrets }) => [id, state, secrets]), [['k1', 'active', 2]])
  assert.equal(gate.revokeKey('acme', 'k1', { author: 'ops' }), true)
  assert.equal(gate.revokeKey('acme', 'k1', { author: 'ops' }), false)
  assert.throws(() => gate.authenticate(next.secret), (error) => error instanceof Refused && error.code === 'key_revoked')
  assert.throws(() => gate.issueKey({ tenant: 'nobody', author: 'ops' }), KeyActError)
})

test('counts are numbers, whole and exact', () => {
  for (const count of [1n, 1.5, -1, NaN, Infinity, 2 ** 53, '1', null, {}]) {
    assert.throws(() => Usage.tokens(count, 1), (error) => error instanceof TypeError && /whole number/.test(error.message))
    assert.throws(() => request({ maxOutputTokens: count }), TypeError)
  }
  assert.equal(Usage.tokens(2 ** 53 - 1, 0).inputTotal, 2 ** 53 - 1)
  assert.equal(request({ maxOutputTokens: undefined }).maxOutputTokens, null)
})

test('what is no usage, request or policy says why', () => {
  const { gate } = stage()
  const lease = gate.admit(ACME, request()).granted()
  const throwsWith = (act, type, code) => assert.throws(act, (error) => error instanceof type && error.code === code)
  throwsWith(() => lease.settle('{'), InputError, 'json_invalid')
  throwsWith(() => lease.settle(new Uint8Array([0xff])), InputError, 'json_invalid')
  throwsWith(() => Usage.read('['.repeat(1000) + ']'.repeat(1000)), InputError, 'too_deep')
  assert.throws(() => lease.settle({ choices: [] }), UsageError)
  for (const value of [undefined, Symbol('x'), () => 1, { tokens: 1n }]) assert.throws(() => lease.settle(value), TypeError)
  const self = {}
  self.self = self
  assert.throws(() => lease.settle(self), TypeError)
  assert.throws(() => lease.settle(REPORT, { dialect: 'openai' }), TypeError)
  assert.throws(() => Request.fromBody('openai_chat', { model: 'm', messages: [{ role: 5 }] }), (error) => {
    assert.ok(error instanceof RequestError)
    assert.match(error.field, /^messages\[0\]/)
    assert.equal(error.code, 'request_invalid')
    return true
  })
  assert.throws(() => Policy.fromObject({ tenants: { acme: { rpm: 'x' }, blue: { tpm: 'y' } } }), (error) => {
    assert.ok(error instanceof PolicyError)
    assert.deepEqual(error.errors.map(({ path, line }) => [path, line]), [['tenants.acme.rpm', 1], ['tenants.blue.tpm', 1]])
    assert.equal(error.name, 'PolicyError')
    return true
  })
  lease.cancel()
})

test("usage is read from the SDKs' own objects", () => {
  class CompletionUsage {
    #hidden = 1
    constructor() {
      Object.assign(this, REPORT)
    }
  }
  class Completion {
    usage = new CompletionUsage()
    toJSON() {
      return { usage: this.usage }
    }
  }
  for (const report of [REPORT, new CompletionUsage(), new Completion(), JSON.stringify(REPORT), Buffer.from(JSON.stringify(REPORT))]) {
    assert.equal(Usage.read(report).total, 30)
  }
  const message = { type: 'message', usage: { input_tokens: 3, output_tokens: 4, cache_read_input_tokens: 5 } }
  assert.equal(Usage.read(message, { dialect: 'anthropic_messages' }).inputCacheRead, 5)
  assert.equal(Outcome.ofAnswer(null).state, 'not_run')
  assert.equal(Outcome.final(REPORT).usage.total, 30)
  assert.ok(new Usage({ inputUncached: 10, outputText: 20 }).equals(Usage.tokens(10, 20)))
})

test('what a host plugs in is asked', () => {
  const entries = []
  const asked = []
  const policy = Policy.fromObject({ ...DOCUMENT, tenants: { ...DOCUMENT.tenants, acme: { tpm: { hard: 100, alert_percent: 50 }, models: ['m', 'pooled'] } } })
  const gate = new Gate(policy, {
    journal: { push: (entry) => entries.push(entry.event) },
    estimator: (request, tokenizer) => (asked.push([request.texts, tokenizer]), { expected: 5, reserve: 6 }),
    pools: { h200: { load: (nowNs) => (assert.equal(typeof nowNs, 'number'), [{ maxRunning: 1 }]), reports: () => false } },
  })
  const alerts = []
  const subscription = gate.onAlert((alert) => alerts.push([alert.tenant, alert.limit, alert.crossed]))
  const lease = gate.admit(ACME, new Request({ model: 'm', text: 'Name three rivers.', maxOutputTokens: 60 })).granted()
  assert.equal(lease.inputTokens, 6)
  assert.deepEqual(asked, [[['Name three rivers.'], 'heuristic']])
  assert.deepEqual(alerts, [['acme', 'tpm', 50]])
  lease.cancel()
  assert.deepEqual(entries, gate.journal().entries.map((entry) => entry.event))
  assert.equal(subscription.stop(), true)
  assert.equal(subscription.stop(), false)
  assert.deepEqual(gate.poolLoad('h200'), { inFlight: 0, waiting: 0 })
  assert.equal(gate.admit(BLUE, pooled()).action, 'allow')
  assert.equal(gate.admit(BLUE, pooled()).action, 'queue')
  assert.throws(() => new Gate(policy, { journal: {} }), TypeError)
  assert.throws(() => new Gate(policy, { estimator: 5 }), TypeError)
  assert.throws(() => new Gate(policy, { pools: { h200: {} } }), TypeError)
})

test('what a host throws goes to the process, and the gate goes on', async () => {
  const thrown = []
  const before = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => thrown.push(error.message))
  try {
    const fails = (what) => () => {
      throw new Error(what)
    }
    const gate = new Gate(Policy.fromObject(DOCUMENT), { journal: { push: fails('journal') }, estimator: fails('estimator') })
    gate.admit(ACME, new Request({ model: 'm', text: 'Name three rivers.' })).granted().cancel()
    await until(() => thrown.includes('estimator') && thrown.filter((what) => what === 'journal').length >= 3, 'what was thrown')
  } finally {
    process.removeAllListeners('uncaughtException')
    for (const listener of before) process.on('uncaughtException', listener)
  }
})

test('entries that another thread writes come later', async () => {
  const entries = []
  const clock = new ManualClock()
  const gate = new Gate(Policy.fromObject(DOCUMENT), { clock, journal: { push: (entry) => entries.push(entry.event) } })
  const lease = gate.admit(ACME, request()).granted()
  const keeper = gate.keeper({ intervalMs: 1 })
  clock.advance(2 * 3_600_000)
  await until(() => entries.length === 3, 'the entry of the keeper')
  keeper.stop()
  assert.deepEqual(entries, ['policy_loaded', 'admitted', 'unresolved'])
  assert.equal(lease.sent(), false)
})

test('operators freeze, reload, look and measure', () => {
  const { gate } = stage()
  gate.freeze({ tenant: 'acme', author: 'ops', reason: 'leak' })
  assert.deepEqual(gate.frozen(), [{ target: 'tenant `acme`', reason: 'leak' }])
  assert.equal(gate.admit(ACME, request()).action, 'reject')
  assert.equal(gate.thaw({ tenant: 'acme', author: 'ops' }), true)
  assert.equal(gate.thaw({ tenant: 'acme', author: 'ops' }), false)
  assert.throws(() => gate.freeze({ author: 'ops', reason: 'x' }), TypeError)
  const digest = gate.digest
  gate.reload(Policy.fromYaml('tenants: {acme: {rpm: 5, models: [m]}}'))
  assert.notEqual(gate.digest, digest)
  const [balance] = gate.balances(ACME)
  assert.deepEqual([balance.scope, balance.limit, balance.hard, balance.windowMs], ['tenant:acme', 'rpm', 5, 60000])
  assert.deepEqual(JSON.parse(JSON.stringify(balance)).remaining, 5)
  assert.equal(gate.headers(ACME)['x-ratelimit-limit-requests'], '5')
  assert.match(gate.metrics(), /^# HELP quota_/m)
  assert.ok(gate.snapshot().pools)
  assert.ok(gate.recent('acme', { lastMs: 1000 }).length > 0)
  assert.deepEqual(gate.journal({ after: 10 ** 9 }), { entries: [], dropped: 0 })
  assert.equal(gate.overshoot().tokens, 0)
  assert.ok(Policy.schema().$schema)
  assert.deepEqual(UpstreamLimits.read(new Headers({ 'x-ratelimit-remaining-tokens': '7' })).tokens.remaining, 7)
  assert.deepEqual(UpstreamLimits.read({ 'X-RateLimit-Remaining-Tokens': ['8'] }).tokens.remaining, 8)
})

test('pools that report, and one that is simulated', () => {
  const clock = new ManualClock()
  const reported = new ReportedPool({ replicas: 1, ttlMs: 5000, maxRunning: 8 })
  const gate = new Gate(Policy.fromObject(DOCUMENT), { clock, pools: { h200: reported } })
  assert.equal(gate.report('h200', 0, { running: 3, waiting: 0 }), true)
  assert.equal(gate.report('h200', 0, { kvUsedPpm: 10 }, { amend: true }), true)
  assert.equal(gate.report('h200', 9, {}), false)
  assert.equal(gate.report('none', 0, {}), false)
  const simulated = new SimulatedPool(clock, { replicas: 1, maxRunning: 2 })
  const other = new Gate(Policy.fromObject(DOCUMENT), { clock, pools: { h200: simulated } })
  assert.equal(other.admit(BLUE, pooled()).action, 'allow')
  simulated.submit(1, { inputTokens: 100, outputTokens: 10 })
  clock.advance(60_000)
  assert.equal(simulated.advance().at(-1).kind, 'finished')
  assert.equal(simulated.cancel(1), null)
})

test('the types name every reason', () => {
  const types = readFileSync(new URL('index.d.cts', import.meta.resolve('quota-node')), 'utf8')
  const [, union] = /export type ReasonCode =\n((?: {2}\| '\w+'\n)+)/.exec(types)
  assert.deepEqual([...union.matchAll(/'(\w+)'/g)].map(([, code]) => code), Object.keys(REASONS))
})
