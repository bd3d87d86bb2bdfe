// Cases of kind `respond`: a refusal as data, answered in both manners; or balances, as rate-limit headers.
//
// Headers are exactly those stated; a body holds at least the members stated.

import { Balance, Refusal, balanceHeaders } from 'quota-node'
import { equal, holds } from './common.mjs'

const STARTS = { openai: 'data: ', anthropic: 'event: error\ndata: ' }

export function run(vector) {
  if (vector.balances) {
    const balances = vector.balances.map((data) => Balance.fromObject(data))
    equal('openai', balanceHeaders(balances), vector.openai)
    equal('anthropic', balanceHeaders(balances, 'anthropic', { at: vector.now }), vector.anthropic)
    return equal('ietf', balanceHeaders(balances, 'ietf'), vector.ietf)
  }
  const refusal = Refusal.fromObject(vector.refusal)
  equal('as data', Refusal.fromObject(refusal.toObject()).toObject(), refusal.toObject())
  for (const [manner, start] of Object.entries(STARTS)) {
    const wanted = vector[manner]
    const { status, headers, body } = refusal.response(manner)
    equal(`${manner}: status`, status, wanted.status)
    equal(`${manner}: headers`, headers, wanted.headers)
    holds(`${manner}: body.`, body, wanted.body)
    const frame = refusal.streamError(manner)
    equal(`${manner}: frame`, [frame.startsWith(start), frame.endsWith('\n\n')], [true, true])
    const data = frame.slice(start.length, -2)
    equal(`${manner}: lines`, data.split(/[\r\n]/).length, 1)
    equal(`${manner}: frame`, JSON.parse(data), body)
  }
}
