// Cases of kind `schedule`: flows with a backlog in front of a pool that takes one request at a time, and how much work each
// is served.

import { Failed, each, equal } from './common.mjs'
import { RATES, scheduler } from './queue.mjs'

/** Requests that an endless source keeps waiting. */
const BACKLOG = 3

class Run {
  /** A tenant's requests: the work of each, in order, the last one again and again where there is no end. */
  sources = new Map()
  nowNs = 0

  constructor(vector) {
    this.scheduler = scheduler(vector, 1)
  }

  arrive(tenant, lane, weight, inputTokens) {
    return this.scheduler.arrive({ tenant, lane, weight, inputTokens, rates: RATES, nowNs: this.nowNs })
  }

  phase(phase) {
    for (const [tenant, given] of Object.entries(phase.tenants ?? {})) {
      for (const [, place] of this.sources.get(tenant)?.waiting ?? []) place.leave()
      this.sources.set(tenant, { lane: 'default', weight: 1, endless: false, ...given, sent: 0, waiting: [] })
    }
    // A pool that is free is taken until all have arrived, so that the order of arrival decides nothing.
    const place = this.arrive('nobody', 'default', 1, 0)
    const first = place.tryTurn()
    if (!first) place.leave()
    this.refill()
    first?.unknown({ nowNs: this.nowNs })
    const order = []
    const served = {}
    let sum = 0
    while (sum < phase.serve_work) {
      const one = this.serve()
      if (!one) break
      const [tenant, work] = one
      served[tenant] = (served[tenant] ?? 0) + work
      sum += work
      order.push(one)
      this.refill()
    }
    this.compare(phase.expect ?? {}, order, served)
  }

  compare(expect, order, served) {
    const tenants = order.map(([tenant]) => tenant)
    for (const [tenant, bounds] of Object.entries(expect.work ?? {})) {
      between(`work of ${tenant}`, served[tenant] ?? 0, bounds)
    }
    for (const [tenant, within] of Object.entries(expect.first_within_items ?? {})) {
      const at = tenants.indexOf(tenant)
      if (at < 0 || at >= within) throw new Failed(`the first of ${tenant} is not within ${within}: ${tenants}`)
    }
    for (const [tenant, bounds] of Object.entries(expect.work_between_items_of ?? {})) {
      const at = tenants.flatMap((other, number) => (other === tenant ? [number] : []))
      equal(`how many items of ${tenant} were served`, at.length, 2)
      const work = order.slice(at[0] + 1, at[1]).reduce((sum, [, work]) => sum + work, 0)
      between(`work between the items of ${tenant}`, work, bounds)
    }
    for (const [tenant, deficit] of Object.entries(expect.deficit_at_rest ?? {})) {
      const flows = this.scheduler.figures().lanes.flatMap((lane) => lane.tenants)
      equal(`deficit of ${tenant}`, flows.find((flow) => flow.tenant === tenant)?.deficit, deficit)
    }
  }

  sorted() {
    return [...this.sources].sort(([one], [other]) => (one < other ? -1 : 1))
  }

  refill() {
    for (const [tenant, source] of this.sorted()) {
      const { items, endless, waiting } = source
      while (waiting.length < BACKLOG && (endless || source.sent < items.length)) {
        const work = items[Math.min(source.sent, items.length - 1)]
        waiting.push([work, this.arrive(tenant, source.lane, source.weight, work)])
        source.sent += 1
      }
    }
  }

  /** Serves the one whose turn has come, to its end. A unit of work takes a microsecond. */
  serve() {
    for (const [tenant, { waiting }] of this.sorted()) {
      const turn = waiting.length > 0 ? waiting[0][1].tryTurn() : null
      if (!turn) continue
      const [work] = waiting.shift()
      this.nowNs += work * 1000
      turn.servedAsAsked({ nowNs: this.nowNs })
      return [tenant, work]
    }
    return undefined
  }
}

function between(what, found, [least, most]) {
  if (found < least || found > most) throw new Failed(`${what}: ${found}, not ${least} to ${most}`)
}

export function run(vector) {
  const stage = new Run(vector)
  each(vector.phases, (phase) => stage.phase(phase), 'phase')
}
