// Cases of kind `calendar`: the period of a unit in a zone that holds an instant, and the nanoseconds at its edges.

import { Calendar } from 'quota-node'
import { equal } from './common.mjs'

/** A nanosecond earlier; the edges of periods are whole seconds. */
const justBefore = (at) => new Date(Date.parse(at) - 1000).toISOString().replace('.000Z', '.999999999Z')

export function run(vector) {
  const calendar = new Calendar(vector.unit, vector.zone, { seconds: vector.seconds, startDay: vector.start_day })
  const { number, start, end } = calendar.period(vector.holds)
  equal('the period', [start, end], [vector.start, vector.end])
  const numbers = [justBefore(start), start, justBefore(end), end].map((at) => calendar.period(at).number)
  equal('the numbers at its edges', numbers, [number - 1, number, number, number + 1])
  const hours = (Date.parse(end) - Date.parse(start)) / 3.6e6
  equal('hours', hours, vector.hours ?? hours)
}
