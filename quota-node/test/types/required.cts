// The same package for CommonJS.

import quota = require('quota-node')
import testing = require('quota-node/testing')

const gate = new quota.Gate(quota.Policy.fromYaml('tenants: {}'), { clock: new testing.ManualClock() })
const decision: quota.Decision = gate.admit(new quota.Principal({ tenant: 'a' }), new quota.Request({ model: 'm' }))
if (decision.action === 'allow') decision.lease.cancel()
// @ts-expect-error it may have none
decision.lease.cancel()
