'use strict'
// Usage and outcomes out of what a provider reports.

const { Usage, Outcome } = require('./native.cjs')
const { document } = require('./text.cjs')
const { show } = require('./shown.cjs')

/** A usage as it is, or what one is read from. */
function usage(report, dialect) {
  return report instanceof Usage ? report : Usage._read(document(report), dialect)
}

/** An outcome or a usage as it is, or what a usage is read from. */
function outcome(given, dialect) {
  return given instanceof Outcome ? given : usage(given, dialect)
}

Usage.read = (report, { dialect } = {}) => usage(report, dialect)

Outcome.final = (given, { dialect } = {}) => Outcome._final(usage(given, dialect))

Outcome.ofAnswer = (status, body, { dialect } = {}) =>
  Outcome._ofAnswer(status ?? null, body == null ? null : document(body), dialect)

show(Usage)
show(Outcome)

module.exports = { Usage, Outcome, usage, outcome }
