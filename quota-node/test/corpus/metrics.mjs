// Cases of kind `metrics`: what inference servers tell of their load, and the priorities that they are told.

import { InputError, priorityHint, readLoad } from 'quota-node'
import { equal, renamed, snake } from './common.mjs'

export function run(vector) {
  if ('rank' in vector) return equal('priority', priorityHint(vector.dialect, vector.rank), vector.priority ?? null)
  let report
  try {
    report = readLoad(vector.dialect, vector.text.join('\n'), { model: vector.model })
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    return equal('error', error.code, vector.error)
  }
  equal('load', renamed(report.load, snake), vector.load)
  equal('bad_lines', report.badLines, vector.bad_lines ?? 0)
  if (vector.models) equal('models', report.models, vector.models)
}
