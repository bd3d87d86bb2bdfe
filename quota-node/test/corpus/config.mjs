// Cases of kind `config`: a document loads or not, with what is said about it or what its limits come to.

import { Policy, PolicyError } from 'quota-node'
import { Failed, camel, equal, picked, renamed, show, without } from './common.mjs'

const SCOPE = ['tenant', 'model', 'app', 'key', 'users', 'cost_center']

function load(vector) {
  return vector.yaml === undefined ? Policy.fromObject(vector.document) : Policy.fromYaml(vector.yaml)
}

export function run(vector) {
  let policy
  try {
    policy = load(vector)
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    if (vector.valid) throw new Failed(`does not load: ${error.message}`)
    return told(error.errors, vector.errors ?? [], vector.error_count)
  }
  if (!vector.valid) throw new Failed('loads')
  told(policy.warnings, vector.warnings ?? [], vector.warning_count)
  for (const fact of vector.limits ?? []) check(policy, fact)
}

/** Each that is wanted is there: path, kind, line where stated, and a part of the message. */
function told(found, wanted, count) {
  if (count !== undefined) equal('how many faults there are', found.length, count)
  for (const want of wanted) {
    if (!found.some((fault) => fits(fault, want))) throw new Failed(`nothing like ${show(want)} in ${show(found)}`)
  }
}

function fits(fault, { says = '', ...stated }) {
  const same = { path: fault.path, kind: fault.code, line: fault.line }
  return fault.message.includes(says) && Object.entries(stated).every(([name, value]) => same[name] === value)
}

function check(policy, fact) {
  const scope = renamed(picked(renamed(fact, camel), SCOPE), camel)
  const found = policy.limits(scope).filter((limit) => limit.name === fact.limit)
  equal(`how many limits are there of ${show(fact)}`, found.length, fact.absent ? 0 : 1)
  if (fact.absent) return
  const [limit] = found
  const text = (amount) => (amount === null ? null : String(amount))
  const shown = {
    ...limit,
    hard: text(limit.hard),
    soft: text(limit.soft),
    burst: text(limit.burst),
    overrides: limit.overrides.map((over) => text(over.hard)),
  }
  for (const [name, want] of Object.entries(without(fact, [...SCOPE, 'limit']))) {
    equal(`${name} of ${show(fact)}`, shown[camel(name)], want)
  }
}
