// Streaming: an answer is paid for while it passes. One ends as it should, one breaks off and is paid for late, and one
// grows to where its tenant has nothing left.
import { fileURLToPath } from 'node:url'
import { Gate, Policy, Principal, Refused, Request, Usage } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

/** What an upstream sends, event by event. */
const text = (content) => Buffer.from(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`)
const usage = Buffer.from('data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}\n\n')
const done = Buffer.from('data: [DONE]\n\n')

const pass = (bytes) => process.stdout.write(Buffer.from(bytes).toString().replaceAll('\n\n', '\n'))

const policy = Policy.fromFile(fileURLToPath(new URL('policy.yaml', import.meta.url)))
const clock = new ManualClock('2026-03-02T12:00:00Z')
const gate = new Gate(policy, { clock })
const who = new Principal({ tenant: 'acme' })

function start(id) {
  const lease = gate.admit(who, new Request({ model: 'small', id, inputTokens: 9, maxOutputTokens: 100, stream: true })).granted()
  lease.sent()
  return lease
}

console.log('r1 ends as it should; its asker did not ask for usage and gets none:')
const first = start('r1').stream('openai_chat', { stripUsage: true })
for (const event of [text('Rhine, '), text('Nile, '), text('Amazon.'), usage, done]) {
  pass(first.feed(event)) // as many bytes as came: events may be cut anywhere
  first.keep()
}
const settled = first.finish()
pass(first.tail)
console.log(`${settled.outcome}: ${settled.costUsd} USD`)

console.log('r2 breaks off:')
const second = start('r2').stream('openai_chat')
try {
  pass(second.feed(text('Rhine, ')))
} finally {
  second[Symbol.dispose]() // the asker is gone; `using` does the same
}
for (const { requestId, worstUsd } of gate.unresolved()) console.log(`unresolved ${requestId}: ${worstUsd} USD charged`)
clock.advance(60_000)
const late = gate.finalize(Usage.tokens(9, 40), { requestId: 'r2' })
console.log(`${late.outcome} late: ${late.late}, ${late.costUsd} USD`)

console.log('r3 outgrows what its tenant has left:')
const third = start('r3').stream('openai_chat')
const paragraph = text('one two three four five six seven eight nine ten '.repeat(8))
let passed = 0
try {
  for (;;) {
    passed += third.feed(paragraph).length > 0
    third.keep()
  }
} catch (error) {
  if (!(error instanceof Refused)) throw error
  console.log(`ended after ${passed} events: ${error.code}`)
}
console.log(third.finish().outcome)
for (const { limit, remaining } of gate.balances(who)) console.log(`${limit}: ${remaining} left`)
