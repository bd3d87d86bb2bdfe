// A fair queue: a pool runs two requests at once. One tenant asks for eight, then another for three; who asks for little
// does not wait for who asks for much. One of those who wait gives up.
import { EventEmitter, on } from 'node:events'
import { fileURLToPath } from 'node:url'
import { FixedPool, Gate, Policy, Principal, Request, Usage } from 'quota-node'
import { ManualClock } from 'quota-node/testing'

const policy = Policy.fromFile(fileURLToPath(new URL('policy.yaml', import.meta.url)))
const clock = new ManualClock('2026-03-02T12:00:00Z')
const gate = new Gate(policy, { clock, pools: { gpus: new FixedPool({ replicas: 1, maxRunning: 2 }) } })

const granted = new EventEmitter()
const turns = on(granted, 'turn')

async function ask(tenant, number, signal) {
  const request = new Request({ model: 'm', inputTokens: 4_000, maxOutputTokens: 2_000 })
  const lease = await gate.acquire(new Principal({ tenant }), request, { signal })
  granted.emit('turn', `${tenant} ${number}`, lease)
}

const givesUp = new AbortController()
const all = [
  ...[1, 2, 3, 4, 5, 6, 7, 8].map((number) => ask('hog', number, number === 7 ? givesUp.signal : undefined)),
  ...[1, 2, 3].map((number) => ask('light', number)),
]
const ended = Promise.allSettled(all)

const running = []
for (let turn = 1; turn <= 10; turn++) {
  const [name, lease] = (await turns.next()).value
  console.log(`turn ${turn}: ${name}, waited ${lease.waitedMs} ms`)
  running.push(lease)
  if (turn === 2) givesUp.abort() // hog 7 gives up
  if (running.length === 2) {
    clock.advance(100)
    running.shift().settle(Usage.tokens(4_000, 2_000))
  }
}
running.shift().settle(Usage.tokens(4_000, 2_000))
console.log(`in flight: ${gate.poolLoad('gpus').inFlight}`)
await ended
