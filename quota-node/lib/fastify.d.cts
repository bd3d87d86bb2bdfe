// A plugin for Fastify 5.

import type { FastifyPluginAsync, FastifyRequest } from 'fastify'
import type { Quota, Routes, ServerOptions } from './wrappers/types.cjs'

export type { Quota, Routes, ServerOptions }

declare module 'fastify' {
  interface FastifyRequest {
    /** Of a request that spends quota. */
    quota: Quota | null
  }
}

/** The addresses that spend quota unless `routes` says otherwise. */
export const ROUTES: Routes

/**
 * Puts a gate in front of the routes of the instance. Whichever parser reads the body reads it as it was agreed; it is at
 * most as large as its route's `bodyLimit` allows. A route in Gemini's manner takes the model from `request.quota.lease.model`.
 */
export const quotaPlugin: FastifyPluginAsync<ServerOptions<FastifyRequest>>
