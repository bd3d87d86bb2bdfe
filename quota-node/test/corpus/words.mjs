// The inputs of a scenario's step: read by name, each once, so that a key that nothing reads is noticed.

import { Outcome, Principal, Request, Usage } from 'quota-node'
import { Failed, camel, renamed, show } from './common.mjs'

export class Words {
  constructor(fields) {
    if (fields === null || typeof fields !== 'object' || Array.isArray(fields)) throw new Failed(`no object: ${show(fields)}`)
    this.fields = { ...fields }
  }

  may(name) {
    const value = this.fields[name]
    delete this.fields[name]
    return value ?? undefined
  }

  need(name) {
    if (!(name in this.fields)) throw new Failed(`no \`${name}\``)
    return this.may(name)
  }

  mayText(name) {
    const value = this.may(name)
    if (value !== undefined && typeof value !== 'string') throw new Failed(`\`${name}\` is no text`)
    return value
  }

  mayCount(name) {
    const value = this.may(name)
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) throw new Failed(`\`${name}\` is no count`)
    return value
  }

  count(name) {
    if (!(name in this.fields)) throw new Failed(`no \`${name}\``)
    return this.mayCount(name) ?? 0
  }

  flag(name) {
    const value = this.may(name)
    if (value !== undefined && typeof value !== 'boolean') throw new Failed(`\`${name}\` is no flag`)
    return value ?? false
  }

  /** A name, or a character so many times: `{"x": 129}`. */
  mayName(name) {
    const value = this.may(name)
    if (value === undefined || typeof value === 'string') return value
    const [[text, times]] = Object.entries(value)
    return text.repeat(times)
  }

  done() {
    const [name] = Object.keys(this.fields)
    if (name !== undefined) throw new Failed(`nothing reads \`${name}\``)
  }

  request(turn) {
    const id = this.mayName('id')
    return new Request({
      model: this.mayName('model') ?? 'm',
      kind: this.mayText('kind'),
      id: id === undefined || turn === 0 ? id : `${id}.${turn}`,
      text: this.mayText('text'),
      inputTokens: this.mayCount('input'),
      maxOutputTokens: this.mayCount('output'),
      choices: this.mayCount('choices'),
      stream: this.flag('stream'),
      serviceTier: this.mayText('service_tier'),
      lane: this.mayText('lane'),
      user: this.mayName('user'),
      runId: this.mayName('run_id'),
      toolCalls: this.mayCount('tool_calls'),
    })
  }

  principal() {
    const who = new Principal({
      tenant: this.mayName('tenant') ?? 'acme',
      namesUsers: this.flag('names_users'),
      app: this.mayName('app'),
      user: this.mayName('user'),
      key: this.mayName('key'),
      lane: this.mayName('lane'),
    })
    this.done()
    return who
  }

  /** `[input, output]`, or the fields of a usage by their names. */
  mayUsage() {
    const value = this.may('usage')
    if (value === undefined) return undefined
    // Counts beyond 2^53, which only say that the core cuts what is absurd, are as absurd as a number can be.
    return Array.isArray(value) ? Usage.tokens(...value.map((count) => Math.min(count, Number.MAX_SAFE_INTEGER))) : new Usage(renamed(value, camel))
  }

  usage() {
    const usage = this.mayUsage()
    if (!usage) throw new Failed('no `usage`')
    return usage
  }

  /** A `usage`, or an upstream's `answer`: `status` (`null` if there was no connection), `dialect`, `body`. */
  outcome() {
    const usage = this.mayUsage()
    if (usage) return usage
    const words = new Words(this.need('answer'))
    const dialect = words.mayText('dialect')
    const outcome = Outcome.ofAnswer(words.may('status') ?? null, words.may('body'), { dialect })
    words.done()
    return outcome
  }
}
