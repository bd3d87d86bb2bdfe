'use strict'
// For tests of what uses a gate: a clock that stands still until it is moved, and a check of the journal.

const { ManualClock, SimulatedPool, _replay } = require('./native.cjs')
const { show } = require('./shown.cjs')

require('./index.cjs')

show(ManualClock)

const replay = (gate) => _replay(gate)

module.exports = { ManualClock, SimulatedPool, replay }
