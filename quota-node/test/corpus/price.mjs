// Cases of kind `price`: what a usage costs, line by line, and the worst case of a request.

import { Outcome, PolicyError, Price, PriceList, Usage } from 'quota-node'
import { Failed, camel, equal, renamed } from './common.mjs'

export function run(vector) {
  let price
  if (vector.litellm) {
    price = PriceList.litellm(vector.litellm).get(vector.model)
    if ('listed' in vector) return equal('listed', price !== null, vector.listed)
  } else {
    try {
      price = new Price(vector.price)
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      return equal('error', error.errors[0].message, vector.error)
    }
  }
  if ('error' in vector) throw new Failed('built, where an error was wanted')
  if (vector.ask) return equal('worst_case_usd', price.worstCase(renamed(vector.ask, camel)), vector.worst_case_usd)
  charge(price, vector)
}

function charge(price, vector) {
  const { status = 200, dialect } = vector
  const outcome = Outcome.ofAnswer(status, vector.body, { dialect })
  if (!['final', 'not_run'].includes(outcome.state)) throw new Failed(`the outcome is ${outcome.state}`)
  const cost = price.cost(outcome.usage ?? new Usage({ requests: 0 }))
  equal('cost_usd', cost.usd, vector.cost_usd)
  equal('fallback', cost.fallback, vector.fallback ?? false)
  equal('unpriced', cost.unpriced, vector.unpriced ?? false)
  const line = ({ fallback, ...line }) => (fallback ? { ...line, fallback } : line)
  if (vector.lines) equal('lines', cost.lines.map(line), vector.lines)
}
