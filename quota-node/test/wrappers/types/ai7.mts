// The middleware's type is that of the SDK's major version that is installed: here ai 7. It is compiled, not run.

import type { LanguageModelMiddleware } from 'ai'
import { Gate, Policy, Principal } from 'quota-node'
import { quotaMiddleware } from 'quota-node/ai'

const middleware: LanguageModelMiddleware = quotaMiddleware({
  gate: new Gate(Policy.fromFile('policy.yaml')),
  who: (params) => new Principal({ tenant: 'acme', user: String(params.maxOutputTokens) }),
})
export const wraps = middleware.wrapStream
