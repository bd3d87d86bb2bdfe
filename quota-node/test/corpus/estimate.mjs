// Cases of kind `estimate`: bodies, what is read of them, and what they reserve.

import { Request, RequestError, estimate } from 'quota-node'
import { Failed, camel, equal, renamed } from './common.mjs'

/** The body with its recipes carried out. */
function made(value) {
  if (Array.isArray(value)) return value.map(made)
  if (value === null || typeof value !== 'object') return value
  if ('$zeros' in value) return (value.prefix ?? '') + 'A'.repeat(Math.ceil(value.$zeros / 3) * 4)
  if ('$nest' in value) {
    let nested = []
    for (let level = 0; level < value.$nest; level++) nested = [nested]
    return nested
  }
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, made(member)]))
}

function read({ dialect, body, model }) {
  if (dialect === 'gemini_generate_content') return Request.fromBody('gemini', made(body), { model, stream: false })
  return Request.fromBody(dialect, made(body))
}

export function run(vector) {
  const { input = {}, error: wanted, ...want } = vector.expect
  let request
  try {
    request = read(vector)
  } catch (error) {
    if (!(error instanceof RequestError)) throw error
    return equal('the field', error.field, wanted)
  }
  if (wanted !== undefined) throw new Failed(`not refused at ${wanted}`)
  const ceilings = Object.entries(renamed(vector.ceilings ?? {}, camel)).map(([name, ceiling]) => [name, [ceiling]])
  const found = {
    output: request.outputCeiling(Object.fromEntries(ceilings)),
    choices: request.choices,
    images: request.imageTokens,
    model: request.model,
    stream: request.stream,
    user: request.user,
    service_tier: request.serviceTier,
  }
  for (const [name, value] of Object.entries(want)) equal(name, found[name], value)
  const { reserve } = estimate(request)
  const { at_least: least = 0, at_most: most = Infinity } = input
  if (reserve < least || reserve > most) throw new Failed(`input is ${reserve}, not ${least} to ${most}`)
}
