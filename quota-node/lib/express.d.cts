// A middleware for Express 5.

import type { Request, RequestHandler } from 'express'
import type { Quota, Routes, ServerOptions } from './wrappers/types.cjs'

export type { Quota, Routes, ServerOptions }

declare global {
  namespace Express {
    interface Request {
      /** Of a request that spends quota. */
      quota?: Quota
    }
  }
}

/** The addresses that spend quota unless `routes` says otherwise. */
export const ROUTES: Routes

/**
 * Puts a gate in front of the handlers behind it. `req.body` is then the parsed body as it was agreed, and the address of a
 * request in Gemini's manner names the model that was. Where a parser of bodies stands before it, it takes what that has
 * read.
 */
export function quotaMiddleware(options: ServerOptions<Request>): RequestHandler
