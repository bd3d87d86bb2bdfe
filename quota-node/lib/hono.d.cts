// A middleware for Hono 4.

import type { Context, MiddlewareHandler } from 'hono'
import type { Quota, Routes, ServerOptions } from './wrappers/types.cjs'

export type { Quota, Routes, ServerOptions }

/** `new Hono<QuotaEnv>()` */
export interface QuotaEnv {
  Variables: {
    /** Of a request that spends quota. */
    quota?: Quota
  }
}

/** The addresses that spend quota unless `routes` says otherwise. */
export const ROUTES: Routes

/**
 * Puts a gate in front of the handlers behind it, which read the body as it was agreed. A handler in Gemini's manner takes the
 * model from `c.get('quota').lease.model`.
 */
export function quotaMiddleware(options: ServerOptions<Context>): MiddlewareHandler<QuotaEnv>
