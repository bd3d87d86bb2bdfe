// What the wrappers' types have in common.

import type { BodyDialect, Gate, Lease, Principal } from '../index.cjs'

/** What a handler is told of an admitted request. */
export interface Quota {
  /** Ended by the wrapper with the last byte of the answer, unless the handler has ended it, or meters its stream. */
  readonly lease: Lease
  /** The body as it was agreed. What was not changed stands as it was written. */
  readonly body: Uint8Array
}

/**
 * Addresses by their end, which matches from a slash on, in any case, each with the dialect of its bodies; `{model}` is where
 * an address names the model.
 */
export type Routes = Readonly<Record<string, BodyDialect>>

/** How a server lets requests in. */
export interface ServerOptions<Asked> {
  gate: Gate
  /** Who asks; it may throw `Refused`. Without it the key in `authorization`, `x-api-key` or `x-goog-api-key` tells. */
  who?: (asked: Asked) => Principal | PromiseLike<Principal>
  /** The addresses whose POST requests spend quota; everything else passes. */
  routes?: Routes
  /** The largest body in bytes, ten MiB by itself. */
  maxBody?: number
}

/** On which terms an upstream is called. */
export interface CallOptions {
  gate: Gate
  /** Who asks, or a function that is asked at each call. */
  who: Principal | (() => Principal | PromiseLike<Principal>)
  /** Ends of further addresses that may be posted to without being metered; `{id}` stands for a segment. */
  unmetered?: readonly string[]
}
