// For tests of what uses a gate.

import type { Gate } from './index.cjs'

/** A clock that stands still until it is moved. */
export class ManualClock {
  /** A clock that stands at an RFC 3339 instant, `2026-03-02T12:00:00Z` by itself. */
  constructor(at?: string)
  /** Moves it forward. */
  advance(ms: number): void
  /** Moves it forward by nanoseconds. */
  advanceNs(ns: number): void
  /** Sets the wall clock alone, as the operating system does when it corrects it. */
  setWall(at: string): void
  /** The wall time as an RFC 3339 instant, to the nanosecond. */
  readonly wall: string
  /** The engine's time in nanoseconds. */
  readonly monoNs: number
}

/** What the journal of a gate adds up to, beside its live accounts. */
export interface Replay {
  /** Entries that the journal no longer has. */
  missing: number
  /** Accounts that were compared. */
  compared: number
  /** Accounts that differ. */
  differ: string[]
}

/** Adds the journal up and compares it with the accounts. */
export function replay(gate: Gate): Replay

/** A pool of replicas of a large model, without a GPU: 4 replicas of 64 sequences and 160,000 tokens each if nothing else is
 *  said. It moves on with the clock. */
export class SimulatedPool {
  constructor(clock: ManualClock, options?: { replicas?: number; maxRunning?: number; kvTokens?: number })
  /** Gives a request to the least loaded replica. Throws if it fits into none, or the id is in use. */
  submit(id: number, tokens: { inputTokens: number; outputTokens: number }): void
  /** Lets a request go; how many tokens its answer had, or `null` where no such request is inside any more. */
  cancel(id: number): number | null
  /** What happened up to now and was not told yet, in its order. */
  advance(): SimulatedEvent[]
  /** The clock's `monoNs` at which there is something to be told next. */
  readonly nextEventNs: number | null
  addReplica(): void
  /** Takes the replica at this place away; its requests are lost. */
  removeReplica(place: number): void
}

export interface SimulatedEvent {
  kind: 'prefilled' | 'first_token' | 'progress' | 'preempted' | 'finished' | 'lost'
  /** The request. */
  id: number
  /** When, as the clock's `monoNs`. */
  atNs: number
  /** Prompt tokens worked through since the last time, or tokens of the answer so far. */
  tokens: number | null
}
