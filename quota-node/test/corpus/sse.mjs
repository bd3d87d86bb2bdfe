// Cases of kind `sse`: what a streamed answer comes to, and which of its bytes pass, however they are cut.

import { readFileSync } from 'node:fs'
import { StreamReader } from 'quota-node'
import { FIXTURES, equal, without } from './common.mjs'
import { normalized, told } from './usage.mjs'

function stream(vector) {
  if (vector.file) return readFileSync(`${FIXTURES}sse/${vector.file}`)
  const parts = Array.isArray(vector.stream) ? vector.stream : [vector.stream]
  return Buffer.from(parts.map((part) => (typeof part === 'string' ? part : part.repeat.repeat(part.times))).join(''))
}

/** What is read when the stream comes in slices of this size. */
function read(vector, whole, size) {
  const reader = new StreamReader(vector.dialect, { stripUsage: vector.strip, maxEvent: vector.max_event })
  const passed = []
  for (let at = 0; at < whole.length; at += size) passed.push(reader.feed(whole.subarray(at, at + size)))
  const output = reader.outputSoFar
  const end = reader.finish()
  const all = Buffer.concat([...passed, end.tail])
  const estimate = vector.estimate ?? 0
  const found = told(end.outcome, estimate)
  if (end.seen) found.seen = normalized(end.seen.orInput(estimate))
  if (end.failed) found.failed = true
  if (end.done) found.done = true
  if (end.anomalies > 0) found.anomalies = end.anomalies
  if ('output' in vector) found.output = output
  if (!all.equals(whole)) found.passed = all.toString()
  return found
}

export function run(vector) {
  const whole = stream(vector)
  const found = read(vector, whole, Math.max(1, whole.length))
  // Cutting at each place is the core's to try: here, that no slice is lost on the way.
  for (const size of [1, 2, 3, 7, 64]) equal(`cut ${size}`, read(vector, whole, size), found)
  const inputs = ['id', 'about', 'dialect', 'stream', 'file', 'strip', 'max_event', 'estimate']
  equal('it', found, without(vector, inputs))
}
