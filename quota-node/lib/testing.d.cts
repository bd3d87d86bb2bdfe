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
