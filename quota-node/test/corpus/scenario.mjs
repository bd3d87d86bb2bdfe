// Cases of kind `scenario`: a script of steps on a manual clock, through the real gate.
//
// What a case and a step may say is written in `quota-core/tests/corpus/scenario.rs`. A key that nothing reads fails the case.

import { EndError, Gate, Policy, Principal, Refused } from 'quota-node'
import { ManualClock, replay } from 'quota-node/testing'
import { FIXTURES, Failed, each, holds, renamed, snake } from './common.mjs'
import { Words } from './words.mjs'

const amounts = (of) => renamed(of, snake)

export function decision(of) {
  let found = {}
  if (of.lease) found = lease(of.lease)
  else if (of.offer) found = renamed(of.offer, snake)
  if (of.refusal) found = refusal(of.refusal)
  if (of.degradation) {
    const { reason, ...degraded } = of.degradation
    found.degraded = renamed(degraded, snake)
  }
  if (of.action === 'queue') Object.assign(found, { lane: of.lane, max_wait_ms: of.maxWaitMs })
  return { ...found, action: of.action, reason: of.reason }
}

const lease = (of) => ({
  model: of.model,
  lane: of.lane,
  input_tokens: of.inputTokens,
  max_output_tokens: of.maxOutputTokens,
  expected_output: of.expectedOutputTokens,
  worst_usd: of.worstUsd,
  soft_passed: of.softPassed.map(([scope, limit]) => `${scope} ${limit}`),
  repeat: of.isRepeat,
})

export const refusal = (of) => ({
  reason: of.reason,
  status: of.status,
  tenant: of.tenant,
  retry_after_ms: of.retryAfterMs,
  wait: of.wait,
  limits: of.shortages.map((shortage) => `${shortage.scope} ${shortage.limit}`),
  shortages: of.shortages.map((shortage) => renamed(shortage, snake)),
  fits: renamed(of.fits, snake),
  says: of.message,
  receipt: of.receipt && receipt(of.receipt),
})

const receipt = (of) => ({
  outcome: of.outcome,
  request: of.requestId,
  cost: of.costUsd,
  late: of.late,
  repeat: of.repeat,
  held: amounts(of.held),
  charged: amounts(of.charged),
  returned: amounts(of.returned),
  overrun: amounts(of.overrun),
  assumed: of.outcome === 'settled' && of.usage === null,
})

/** The receipt, or the error: its code, its words, and the field of a conflict. */
function ended(end) {
  try {
    return receipt(end())
  } catch (error) {
    if (!(error instanceof EndError)) throw error
    const { code, field = null, first = null, second = null } = error
    return { error: code, field, first, second }
  }
}

function policy(words) {
  const [document, file] = [words.may('policy'), words.mayText('policy_file')]
  if ((document === undefined) === (file === undefined)) throw new Failed('needs `policy` or `policy_file`')
  const made = file ? Policy.fromFile(FIXTURES + file) : Policy.fromObject(document)
  const prices = words.may('price_list')
  return prices === undefined ? made : made.withPrices(JSON.stringify(prices))
}

/** A gate, its clock, and what the steps have given names to. */
class Stage {
  elapsed = 0
  leases = new Map()
  queued = new Map()
  known = new Map()
  run

  constructor(words) {
    this.clock = new ManualClock(words.mayText('start'))
    const bounds = new Words(words.may('bounds') ?? {})
    const [maxRows = 128, maxOpenLeases = 128] = [bounds.mayCount('rows'), bounds.mayCount('open_leases')]
    bounds.done()
    this.gate = new Gate(policy(words), { clock: this.clock, maxRows, maxOpenLeases })
  }

  step(step) {
    const words = new Words(step)
    words.mayText('about')
    const [millis, nanos] = [words.mayCount('at_ms'), words.mayCount('at_ns')]
    const at = nanos ?? (millis === undefined ? undefined : millis * 1_000_000)
    if (at !== undefined) {
      if (at < this.elapsed) throw new Failed('the step lies before the last one')
      this.clock.advanceNs(at - this.elapsed)
      this.elapsed = at
    }
    const given = words.may('expect') ?? {}
    const expect = typeof given === 'string' ? { action: given } : given
    const times = words.mayCount('times') ?? 1
    for (let turn = 0; turn < times; turn++) {
      const [found, who] = this.act(new Words(words.fields), turn)
      this.addBalances(found, who)
      try {
        holds('', found, expect)
      } catch (error) {
        throw error instanceof Failed ? new Failed(`(turn ${turn + 1}) ${error.message}`) : error
      }
    }
  }

  /** Does what a step says; what came of it, and whose balances it is about. */
  act(words, turn) {
    const verb = words.need('do')
    const act = Object.hasOwn(verbs, verb) && verbs[verb]
    if (!act) throw new Failed(`no verb \`${verb}\``)
    const did = act(this, words, turn)
    words.done()
    return did
  }

  who(words) {
    const who = words.may('who')
    if (who !== undefined && typeof who !== 'string') return new Words(who).principal()
    return this.known.get(who) ?? new Principal({ tenant: who ?? 'acme' })
  }

  request(words, turn) {
    const request = words.request(turn)
    this.run = request.runId ?? this.run
    return request
  }

  lease(name) {
    const lease = this.leases.get(name)
    if (!lease) throw new Failed(`no lease \`${name}\``)
    return lease
  }

  onLease(words, act) {
    const lease = this.lease(words.need('of'))
    return [act(lease), lease.principal]
  }

  /** The balances of a principal: by scope and limit, and by the limit alone where no other has its name. */
  addBalances(found, who) {
    const balances = this.gate.balances(who, { operator: true })
    if (this.run !== undefined) {
      const ofRun = this.gate.balances(who, { runId: this.run })
      balances.push(...ofRun.filter((balance) => balance.scope.endsWith(`/run:${this.run}`)))
    }
    const names = balances.map((balance) => balance.limit)
    const once = (name) => names.indexOf(name) === names.lastIndexOf(name)
    for (const [name, field] of Object.entries({ remaining: 'remaining', used: 'used', hard: 'hard', soft: 'soft', resets_ms: 'resetsMs' })) {
      found[name] = {}
      for (const balance of balances) {
        if (once(balance.limit)) found[name][balance.limit] = balance[field]
        found[name][`${balance.scope} ${balance.limit}`] = balance[field]
      }
    }
  }
}

/** What a step can do: `(stage, words, turn) => [what came of it, whose balances it is about]`. */
const verbs = {
  admit(stage, words, turn) {
    const [who, named] = [stage.who(words), words.mayText('as')]
    const request = stage.request(words, turn)
    const name = named === undefined ? request.id : turn === 0 ? named : `${named}.${turn}`
    const made = stage.gate.admit(who, request)
    if (made.lease) {
      const known = name ?? `lease ${stage.leases.size}`
      if (stage.leases.has(known)) throw new Failed(`\`${known}\` is the name of a lease already`)
      stage.leases.set(known, made.lease)
    } else if (made.action === 'queue') {
      stage.queued.set(name ?? `queued ${stage.queued.size}`, made)
    }
    return [decision(made), who]
  },

  preview(stage, words, turn) {
    const who = stage.who(words)
    return [decision(stage.gate.preview(who, stage.request(words, turn))), who]
  },

  /** Admits, sends and settles. */
  run(stage, words, turn) {
    const [who, request, usage] = [stage.who(words), stage.request(words, turn), words.usage()]
    const made = stage.gate.admit(who, request)
    if (!made.lease) return [decision(made), who]
    made.lease.sent()
    return [ended(() => made.lease.settle(usage)), who]
  },

  /** What is lost is ended when it is collected, at no known time: a scope's end does the same at once. */
  drop(stage, words) {
    const name = words.need('of')
    const lease = stage.lease(name)
    lease[Symbol.dispose]()
    stage.leases.delete(name)
    return [{}, lease.principal]
  },

  sent: (stage, words) => stage.onLease(words, (lease) => ({ open: lease.sent() })),
  renew: (stage, words) => stage.onLease(words, (lease) => ({ open: lease.renew() })),

  extend(stage, words) {
    const output = words.count('output')
    return stage.onLease(words, (lease) => {
      try {
        lease.extend(output)
      } catch (error) {
        if (!(error instanceof Refused)) throw error
        return { ...refusal(error.refusal), extended: false }
      }
      return { extended: true }
    })
  },

  settle(stage, words) {
    const usage = words.usage()
    return stage.onLease(words, (lease) => ended(() => lease.settle(usage)))
  },

  cancel: (stage, words) => stage.onLease(words, (lease) => ended(() => lease.cancel())),

  unresolved(stage, words) {
    const seen = words.mayUsage()
    return stage.onLease(words, (lease) => ended(() => lease.unresolved('no_usage', { seen })))
  },

  finish(stage, words) {
    const outcome = words.outcome()
    return stage.onLease(words, (lease) => ended(() => lease.finish(outcome)))
  },

  finalize(stage, words) {
    const [requestId, of] = [words.mayText('request'), words.mayText('of')]
    const leaseId = of === undefined ? undefined : stage.lease(of).id
    const outcome = words.outcome()
    return [ended(() => stage.gate.finalize(outcome, { requestId, leaseId })), stage.who(words)]
  },

  leave_queue(stage, words) {
    const name = words.need('of')
    stage.queued.get(name).leave()
    stage.queued.delete(name)
    return [{}, stage.who(words)]
  },

  sweep(stage, words) {
    return [{ ended: stage.gate.sweep(words.mayCount('at_most') ?? 2 ** 20) }, stage.who(words)]
  },

  reload(stage, words) {
    stage.gate.reload(policy(words))
    return [{}, stage.who(words)]
  },

  set_pressure(stage, words) {
    const known = stage.gate.setPressure(words.need('pool'), words.count('percent'))
    return [{ known }, stage.who(words)]
  },

  set_wall(stage, words) {
    stage.clock.setWall(words.need('wall'))
    return [{}, stage.who(words)]
  },

  balances(stage, words) {
    const who = stage.who(words)
    const balances = stage.gate.balances(who, { operator: words.flag('operator') })
    return [{ limits: balances.map((balance) => `${balance.scope} ${balance.limit}`) }, who]
  },

  authenticate(stage, words) {
    const [key, name] = [words.need('key'), words.mayText('as')]
    try {
      const who = stage.gate.authenticate(key)
      if (name !== undefined) stage.known.set(name, who)
      const { tenant, app, env, user, lane, key: id } = who
      return [{ tenant, app, env, user, lane, key: id, reason: null }, who]
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      return [refusal(error.refusal), new Principal({ tenant: 'acme' })]
    }
  },

  unresolved_list(stage, words) {
    const open = stage.gate.unresolved(words.mayCount('at_most') ?? 2 ** 20)
    return [{ requests: open.map((record) => record.requestId) }, stage.who(words)]
  },

  overshoot: (stage, words) => [amounts(stage.gate.overshoot()), stage.who(words)],

  explain(stage, words) {
    const entries = stage.gate.explain(words.need('request'))
    return [{ events: entries.map((entry) => entry.event), entries }, stage.who(words)]
  },

  replay(stage, words) {
    const { missing, differ, compared } = replay(stage.gate)
    return [{ missing, differ, compared: compared > 0 }, stage.who(words)]
  },
}

export function run(vector) {
  const words = new Words(vector)
  words.need('id')
  words.need('about')
  const stage = new Stage(words)
  const steps = words.need('steps')
  words.done()
  each(steps, (step) => stage.step(step))
}
