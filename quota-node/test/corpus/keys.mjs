// Cases of kind `keys`: acts on keys and questions about them, at their times.

import { createHash } from 'node:crypto'
import { inspect } from 'node:util'
import { Gate, KeyActError, Policy, Refused, Request, Usage } from 'quota-node'
import { ManualClock } from 'quota-node/testing'
import { Failed, camel, each, equal, renamed, show } from './common.mjs'

class Run {
  clock = new ManualClock('2026-03-02T12:00:00Z')
  at = 0
  made = {}
  principals = {}
  leases = {}

  constructor(vector) {
    this.gate = new Gate(Policy.fromObject(vector.policy), { clock: this.clock })
    this.given = vector.secrets ?? {}
  }

  secret({ secret }) {
    return this.made[secret]?.secret ?? this.given[secret]
  }

  step(step) {
    this.clock.advance(step.at_ms - this.at)
    this.at = step.at_ms
    const { expect = {}, tenant, id } = step
    const author = 'ops'
    switch (step.do) {
      case 'issue': {
        const { at_ms, do: _, ...key } = step.key
        return this.issued(step, () => this.gate.issueKey({ ...renamed(key, camel), author }))
      }
      case 'rotate':
        return this.issued(step, () => this.gate.rotateKey(tenant, id, { author, overlapMs: step.overlap_ms }))
      case 'revoke':
        return attempt(KeyActError, (error) => failed(error, expect), () => {
          equal('changed', this.gate.revokeKey(tenant, id, { author }), expect.changed)
        })
      case 'authenticate':
        return this.principal(step, () => this.gate.authenticate(step.bearer ?? this.secret(step)))
      case 'claims':
        return this.principal(step, () => this.gate.principalFromClaims(step.claims))
      case 'admit':
        return this.admit(step)
      case 'settle':
        this.leases[step.lease].settle(Usage.tokens(step.input ?? 0, step.output ?? 0))
        return void delete this.leases[step.lease]
      case 'reload':
        return this.gate.reload(Policy.fromObject(step.policy))
      case 'keys':
        return this.keys(step)
      case 'differ': {
        const [one, other] = step.secrets.map((name) => this.made[name].secret)
        return equal('whether they are the same', one === other, false)
      }
      default:
        throw new Failed(`no step \`${step.do}\``)
    }
  }

  issued(step, issue) {
    const { expect = {} } = step
    attempt(KeyActError, (error) => failed(error, expect), () => {
      const issued = issue()
      if (expect.error) throw new Failed(`made \`${issued.id}\`, not ${expect.error}`)
      if (expect.expires) equal('expires', issued.expires, expect.expires)
      const named = step.id ?? step.key?.id
      if (named !== undefined) equal('id', issued.id, named)
      if (step.as) this.made[step.as] = issued
    })
  }

  principal(step, ask) {
    const { expect = {} } = step
    attempt(Refused, (error) => refused(error.refusal, expect), () => {
      const who = ask()
      if (expect.reason) throw new Failed(`let in, not ${expect.reason}`)
      for (const name of ['tenant', 'app', 'env', 'user', 'lane']) equal(name, who[name], expect[name] ?? null)
      // The id of a key is stated where it was chosen.
      if (expect.key) equal('key', who.key, expect.key)
      if (step.principal) this.principals[step.principal] = who
    })
  }

  admit(step) {
    const { expect = {}, input_tokens: inputTokens = 0, model } = step
    const who = step.principal ? this.principals[step.principal] : this.gate.authenticate(this.secret(step))
    const decision = this.gate.admit(who, new Request({ model, inputTokens, maxOutputTokens: 0 }))
    if (decision.action === 'reject') return refused(decision.refusal, expect)
    equal('action', [decision.action, expect.allowed], ['allow', true])
    if (step.lease) this.leases[step.lease] = decision.lease
    else decision.lease.settle(Usage.tokens(inputTokens, 0))
  }

  keys({ tenant, expect = [], count = expect.length }) {
    const keys = this.gate.keys(tenant)
    equal('count', keys.length, count)
    expect.forEach((want, number) => {
      for (const [name, wanted] of Object.entries(want)) equal(name, keys[number][camel(name)], wanted)
    })
  }

  /** No secret and no digest is in the journal, nor in what is printed. */
  nothingShown() {
    let shown = inspect([this.gate, this.made, this.principals], { depth: 9 }) + show([this.made, this.principals])
    for (const tenant of ['acme', 'other']) {
      shown += inspect(this.gate.keys(tenant)) + show(this.gate.recent(tenant, { lastMs: 2 ** 50 }))
    }
    for (const secret of [...Object.values(this.made).map((issued) => issued.secret), ...Object.values(this.given)]) {
      const digest = createHash('sha256').update(secret).digest('hex')
      const found = [secret, secret.slice(3)].some((text) => shown.includes(text)) || shown.toLowerCase().includes(digest)
      if (found) throw new Failed('a secret or its digest is shown')
    }
  }
}

/** Does something; an error of a class is looked at. */
function attempt(type, look, act) {
  try {
    act()
  } catch (error) {
    if (!(error instanceof type)) throw error
    look(error)
  }
}

function failed(error, expect) {
  equal('error', error.code, expect.error)
  says(error.message, expect)
}

function refused(refusal, expect) {
  equal('reason', refusal.reason, expect.reason)
  if (expect.scopes) equal('scopes', refusal.shortages.map((shortage) => shortage.scope), expect.scopes)
  says(refusal.message, expect)
}

function says(message, { says = '' }) {
  if (!message.includes(says)) throw new Failed(`does not say ${says}: ${message}`)
}

export function run(vector) {
  const stage = new Run(vector)
  each(vector.steps, (step) => stage.step(step))
  stage.nothingShown()
}
