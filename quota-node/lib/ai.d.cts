// A middleware for language models of Vercel's AI SDK.

import type { LanguageModelMiddleware } from 'ai'
import type { Gate, Principal } from './index.cjs'

type Wrapped = Parameters<NonNullable<LanguageModelMiddleware['wrapGenerate']>>[0]

export interface AiOptions {
  gate: Gate
  /** Who asks, or a function of the call's options that is asked at each call. */
  who: Principal | ((params: Wrapped['params']) => Principal | PromiseLike<Principal>)
  /** The model of a name, for requests that are admitted on another one than they asked for. */
  models?: (name: string) => Wrapped['model'] | undefined
}

/**
 * A middleware that asks the gate before each call of the model, and settles by the usage that the SDK tells: of an answer, or
 * of the last part of a stream. A refusal is an `APICallError` and a `Refused` at once; each attempt has a lease of its own.
 */
export function quotaMiddleware(options: AiOptions): LanguageModelMiddleware
