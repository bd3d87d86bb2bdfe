// What the types allow, and what they refuse: compiled, never run.

import {
  Balance,
  Calendar,
  FixedPool,
  Gate,
  Lease,
  Outcome,
  Policy,
  Price,
  Principal,
  Refused,
  REASONS,
  Request,
  Scheduler,
  StreamReader,
  Usage,
  countTokens,
  type Alert,
  type Decision,
  type Estimator,
  type Journal,
  type Pool,
  type Preview,
  type ReasonCode,
  type Receipt,
} from 'quota-node'
import { ManualClock, SimulatedPool, replay } from 'quota-node/testing'

/** Fails to compile unless both are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const is = <T extends true>(): void => void (0 as unknown as T)

const clock = new ManualClock()
const journal: Journal = { push: (entry) => void entry.event }
const estimator: Estimator = (request, tokenizer) => ({ expected: request.texts.length + tokenizer.length })
const pool: Pool = { load: (nowNs) => [{ running: nowNs }], reports: () => true }
const policy = Policy.fromObject({ tenants: { acme: { rpm: 60 } } })
const gate = new Gate(policy, {
  clock,
  journal,
  estimator,
  pools: { a: new FixedPool({ replicas: 1, maxRunning: 2 }), b: pool, c: new SimulatedPool(clock) },
})
const who = gate.authenticate('key')
const request = new Request({ model: 'm', text: 'x' })

const decision: Decision = gate.admit(who, request)
if (decision.action === 'allow') {
  is<Same<typeof decision.lease, Lease>>()
  is<Same<typeof decision.reason, null>>()
  is<Same<typeof decision.degradation, null>>()
} else if (decision.action === 'degrade') {
  decision.lease.sent()
  is<Same<typeof decision.degradation.maxOutputTokens, number>>()
} else {
  is<Same<typeof decision.lease, null>>()
  is<Same<typeof decision.reason, ReasonCode>>()
  const { status, headers, body } = decision.refusal.response('anthropic')
  is<Same<[typeof status, typeof headers], [number, Record<string, string>]>>()
  void body.error
  if (decision.action === 'queue') is<Same<typeof decision.maxWaitMs, number>>()
}
if (decision.lease) decision.lease.settle({ prompt_tokens: 1 })
// @ts-expect-error a decision may have no lease
decision.lease.settle({})
// @ts-expect-error there is no such action
if (decision.action === 'alow') decision.leave()
// @ts-expect-error nor such a reason
if (decision.reason === 'rpm_exceded') decision.leave()

const preview: Preview = gate.preview(who, request)
if (preview.action === 'allow') is<Same<typeof preview.offer.worstUsd, string>>()
// @ts-expect-error nothing is offered where nothing fits
if (preview.action === 'reject') preview.offer.model

async function main(signal: AbortSignal): Promise<void> {
  await using lease = await gate.acquire(who, request, { signal, timeoutMs: 100 })
  is<Same<typeof lease, Lease>>()
  is<Same<[typeof lease.upstreamModel, typeof lease.ttlMs, typeof lease.isOpen], [string, number, boolean]>>()
  using stream = lease.stream('openai_chat', { stripUsage: true })
  for await (const bytes of stream.pipe([new Uint8Array()])) is<Same<typeof bytes, Uint8Array>>()
  const answer = await gate.run(who, request, async (lease) => ({ id: lease.id, usage: {} }), { signal })
  is<Same<typeof answer, { id: string; usage: {} }>>()
  const receipt: Receipt = lease.finish(Outcome.ofAnswer(200, { usage: {} }), { dialect: 'auto' })
  is<Same<typeof receipt.costUsd, string>>()
  is<Same<typeof receipt.charged.tokens, number>>()
  // @ts-expect-error a promise is no lease
  gate.acquire(who, request).settle({})
  // @ts-expect-error it is no number
  await gate.acquire(who, request, { timeoutMs: '100' })
  try {
    await gate.acquire(who, request)
  } catch (error) {
    if (error instanceof Refused) {
      is<Same<typeof error.retryAfterMs, number | null>>()
      is<Same<typeof error.code, ReasonCode>>()
      is<Same<(typeof REASONS)[typeof error.code]['status'], number>>()
    }
  }
}
void main

const subscription = gate.onAlert((alert: Alert) => void (alert.tenant + alert.crossed))
is<Same<ReturnType<typeof subscription.stop>, boolean>>()
const [limit] = policy.limits({ tenant: 'acme', users: true })
if (limit) is<Same<typeof limit.hard, string | number>>()
const balances: Balance[] = gate.balances(who, { runId: 'r' })
void balances
gate.freeze({ tenant: 'acme', key: 'k', author: 'ops', reason: 'leak' })
gate.finalize(Usage.tokens(1, 2), { requestId: 'r' })
const place = new Scheduler({ capacity: 1 }).arrive({ tenant: 'a', nowNs: 0 })
void place.wait({ timeoutMs: 5 }).then((turn) => turn.served({ nowNs: 5, outputTokens: 3 }))
is<Same<ReturnType<typeof replay>['differ'], string[]>>()
is<Same<ReturnType<Calendar['period']>['start'], string>>()
is<Same<ReturnType<Price['worstCase']>, string>>()
is<Same<ReturnType<typeof countTokens>['exact'], boolean>>()
void new StreamReader('gemini').finish().outcome.usage?.total

// What may be left out may be `undefined`.
new Principal({ tenant: 'a', user: undefined as string | undefined })
new Request({ model: 'm', maxOutputTokens: undefined })

// @ts-expect-error options are one object, by their names
new Gate(policy, clock)
// @ts-expect-error
new Request('m')
// @ts-expect-error
new Principal({ tenant: 5 })
// @ts-expect-error counts are numbers
Usage.tokens(1n, 2n)
// @ts-expect-error there is no such dialect
gate.finalize({}, { requestId: 'r', dialect: 'openai' })
// @ts-expect-error either id is wanted
gate.finalize({}, {})
// @ts-expect-error leases come from gates alone
new Lease()
// @ts-expect-error a tenant or a model
gate.freeze({ author: 'ops', reason: 'leak' })
// @ts-expect-error properties are read only
who.tenant = 'blue'
