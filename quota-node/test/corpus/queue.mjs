// Cases of kind `queue`: what arrives, leaves and ends in front of a pool, and whose turn comes of it.

import { QueueRefused, Scheduler } from 'quota-node'
import { Failed, camel, each, equal, renamed } from './common.mjs'

const MILLISECOND = 1_000_000
// One unit of work a token of input.
export const RATES = { input: 1000, cached: 0, output: 0, pairs: 0 }

export function scheduler(vector, capacity) {
  const lanes = vector.lanes.map((lane) => renamed(lane, camel))
  return new Scheduler({ capacity, lanes, mode: vector.mode, idleTtlMs: vector.idle_ttl_ms })
}

class Run {
  /** In the order of arrival. */
  places = []
  turns = new Map()

  constructor(vector) {
    this.scheduler = scheduler(vector, vector.capacity)
  }

  arrive(step, nowNs) {
    const { tenant = 'acme', lane, weight, work = 100, max_queued: maxQueued } = step
    return this.scheduler.arrive({ tenant, lane, weight, inputTokens: work, maxQueued, rates: RATES, nowNs })
  }

  /** The turn that is to end, or to be put back. */
  take(name) {
    const turn = this.turns.get(name)
    this.turns.delete(name)
    return turn
  }

  act(step, nowNs, refused) {
    const { id = '', scope = '' } = step
    switch (step.do) {
      case 'arrive':
        return attempt(id, refused, () => this.places.push([id, this.arrive(step, nowNs)]))
      case 'leave':
        for (const [name, place] of this.places) if (name === id) place.leave()
        return void (this.places = this.places.filter(([name]) => name !== id))
      case 'end': {
        const turn = this.take(id)
        return equal('a turn ends once', [turn.servedAsAsked({ nowNs }), turn.servedAsAsked({ nowNs })], [true, false])
      }
      case 'put_back': {
        const dueNs = step.due_ms === undefined ? undefined : step.due_ms * MILLISECOND
        const place = this.take(id).putBack(scope, { nowNs, wholeFlow: step.whole_flow, dueNs })
        return this.places.unshift([id, place])
      }
      case 'release':
        return this.scheduler.released(scope, { nowNs })
      case 'capacity':
        return this.scheduler.setCapacity(step.requests, { nowNs })
      case 'tick':
        return this.scheduler.tick({ nowNs })
      default:
        throw new Failed(`no step \`${step.do}\``)
    }
  }

  step(step) {
    const [turns, refused] = [[], {}]
    this.act(step, step.at_ms * MILLISECOND, refused)
    // `unclaimed`: turns that have come are not looked at yet.
    if (!step.unclaimed) {
      this.places = this.places.filter(([name, place]) => {
        let turn = null
        if (!attempt(name, refused, () => (turn = place.tryTurn()))) return false
        if (turn) {
          turns.push(name)
          this.turns.set(name, turn)
        }
        return !turn
      })
    }
    this.compare(step.expect ?? {}, turns, refused)
  }

  compare(expect, turns, refused) {
    const figures = this.scheduler.figures()
    const { lanes } = figures
    const found = {
      turns,
      refused,
      queued: lanes.reduce((sum, lane) => sum + lane.queued, 0),
      in_flight: figures.in_flight,
      tenants: lanes.flatMap((lane) => lane.tenants.map(({ tenant }) => tenant)),
    }
    const wanted = { turns: [], refused: {}, ...expect }
    for (const [name, want] of Object.entries(wanted)) if (want !== null) equal(name, found[name], want)
  }
}

/** Whether nothing was refused; what was is noted. */
function attempt(name, refused, act) {
  try {
    act()
    return true
  } catch (error) {
    if (!(error instanceof QueueRefused)) throw error
    refused[name] = error.code
    return false
  }
}

export function run(vector) {
  const stage = new Run(vector)
  each(vector.steps, (step) => stage.step(step))
}
