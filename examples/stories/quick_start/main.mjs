// Quick start: a request is reserved, sent and settled; one that does not fit is refused, and told what would fit.
import { fileURLToPath } from 'node:url'
import { Gate, Outcome, Policy, Request } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

const policy = Policy.fromFile(fileURLToPath(new URL('policy.yaml', import.meta.url)))
// A gateway leaves the clock out; here it stands still, so that each run tells the same.
const gate = new Gate(policy, { clock: new ManualClock('2026-03-02T12:00:00Z') })

const who = gate.authenticate('demo-acme-key')
console.log(`${who.tenant} asks`)

const body = { model: 'small', max_tokens: 200, messages: [{ role: 'user', content: 'Name three rivers.' }] }
const first = gate.admit(who, Request.fromBody('openai_chat', body, { id: 'r1' })).granted()
console.log(`r1 allowed: at most ${first.maxOutputTokens} tokens out and ${first.worstUsd} USD`)

first.sent() // bytes are about to leave for the provider
const answer = { usage: { prompt_tokens: 12, completion_tokens: 31, total_tokens: 43 } }
const receipt = first.settle(answer)
console.log(`r1 charged: ${receipt.charged.inputTokens} in, ${receipt.charged.outputTokens} out, ${receipt.costUsd} USD`)
console.log(`r1 returned: ${receipt.returned.tokens} tokens`)
console.log(`r1 settled again: ${first.settle(answer).repeat ? 'the first receipt' : 'charged twice'}`)

const large = new Request({ model: 'small', id: 'r2', inputTokens: 4_000, maxOutputTokens: 20_000 })
const decision = gate.admit(who, large)
if (decision.action !== 'reject') throw new Error('it does not fit')
const { refusal } = decision
console.log(`r2 refused: ${refusal.status} ${refusal.reason}`)
for (const { limit, used, hard, asked } of refusal.shortages) {
  console.log(`  ${limit}: ${used} of ${hard} used, ${asked} asked`)
}
console.log(`  would fit: ${refusal.fits.maxOutputTokens} tokens out`)

const last = gate.admit(who, new Request({ model: 'small', id: 'r3', inputTokens: 10 })).granted()
last.finish(Outcome.notRun()) // the provider was never reached
for (const { limit, remaining, hard } of gate.balances(who)) console.log(`${limit}: ${remaining} left of ${hard}`)
