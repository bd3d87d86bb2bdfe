// Anthropic's client with a gate before its calls.

import type { CallOptions } from './wrappers/types.cjs'

export type { CallOptions }

/** What is asked of a client. It is no class of the SDK's: those of its two builds are not the same to the compiler. */
interface Client {
  withOptions(options: never): unknown
}

/**
 * A copy of the client whose calls ask the gate first, and which is used in the same ways: plain calls, streams, helpers,
 * raw responses, `withOptions`. Metered are messages, also those of `beta`; other POSTs fail with
 * status 400 (`call_not_metered`) unless `unmetered` lists them. A refusal is the SDK's own error of its status, whose
 * retries keep the wait that it tells; each attempt has a lease of its own.
 */
export function wrap<C extends Client>(client: C, options: CallOptions): C
