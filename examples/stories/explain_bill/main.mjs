// A bill explained: each request's story as the journal has it, and their sum, which is what the tenant's budget says.
import { fileURLToPath } from 'node:url'
import { Gate, Policy, Principal, Request, Usage } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

const policy = Policy.fromFile(fileURLToPath(new URL('policy.yaml', import.meta.url)))
const clock = new ManualClock('2026-03-02T12:00:00Z')
const gate = new Gate(policy, { clock })
const who = new Principal({ tenant: 'acme' })
const ask = (id) => gate.admit(who, new Request({ model: 'large', id, inputTokens: 8_000, maxOutputTokens: 1_000 }))

// Paid by the provider's own figures, of which 6,000 tokens were read from its cache.
const paid = ask('paid').granted()
paid.sent()
const usage = { prompt_tokens: 8_000, completion_tokens: 250, prompt_tokens_details: { cached_tokens: 6_000 } }
paid.settle({ usage: { ...usage, total_tokens: 8_250 } })
// Cancelled: it never left.
ask('cancelled').granted().cancel()
// Lost on the way, and reported a minute later.
const late = ask('late').granted()
late.sent()
late.unresolved('upstream_failed')
clock.advance(60_000)
gate.finalize(Usage.tokens(8_000, 100), { requestId: 'late' })
// Lost, and never reported: it is charged as it was reserved.
const lost = ask('lost').granted()
lost.sent()
lost[Symbol.dispose]() // what `using` and `await using` do at the end of their scope
// Refused: it costs nothing.
if (ask('refused').action !== 'reject') throw new Error('it fits')

/** Decimal text as units of 1e-8 USD, so that nothing is added up in floating point. */
function units(usd) {
  const [whole, fraction = ''] = usd.split('.')
  return Number(whole + fraction.padEnd(8, '0'))
}
const dollars = (sum) => (sum / 1e8).toFixed(8).replace(/\.?0+$/, '')

let sum = 0
for (const id of ['paid', 'cancelled', 'late', 'lost', 'refused']) {
  console.log(id)
  let charged = 0
  for (const entry of gate.explain(id)) {
    const { at, event } = entry
    if (event === 'admitted') console.log(`  ${at} ${event}: at most ${entry.estimate.worst_case_usd} USD`)
    else if (event === 'refused') console.log(`  ${at} ${event}: ${entry.message}`)
    else {
      console.log(`  ${at} ${event}: ${entry.cost_usd} USD`)
      for (const line of entry.lines ?? []) console.log(`    ${line.units} ${line.item}: ${line.usd} USD`)
      charged = units(entry.charged_usd)
    }
  }
  sum += charged
}
console.log(`sum: ${dollars(sum)} USD`)
const budget = gate.balances(who).find(({ limit }) => limit === 'daily_budget_usd')
console.log(`budget: ${budget.used} USD used`)
