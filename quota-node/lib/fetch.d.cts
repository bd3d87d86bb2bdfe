// A `fetch` with a gate before its calls of models.

import type { CallOptions, Routes } from './wrappers/types.cjs'

export type { CallOptions, Routes }

/** The addresses that spend quota unless `routes` says otherwise. */
export const ROUTES: Routes

export interface FetchOptions extends CallOptions {
  /** The addresses whose POST requests spend quota. */
  routes?: Routes
}

/**
 * The same function, which asks the gate before a POST leaves: one lease for each call. It resolves to a refusal as the
 * provider would answer it, and rejects as `fetch` does, with the signal's reason too where that aborts the wait. A POST
 * that can't be metered is answered with status 400 (`call_not_metered`) unless `unmetered` lists it; other methods pass.
 */
export function quotaFetch(fetch: typeof globalThis.fetch, options: FetchOptions): typeof globalThis.fetch
