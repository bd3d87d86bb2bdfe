// What the wrappers of calls allow and refuse. It is compiled, not run.

import Anthropic from '@anthropic-ai/sdk'
import { streamText, wrapLanguageModel, type LanguageModelMiddleware } from 'ai'
import type { LanguageModelV3 } from '@ai-sdk/provider'
import OpenAI, { AzureOpenAI } from 'openai'
import { Gate, Policy, Principal } from 'quota-node'
import { quotaMiddleware } from 'quota-node/ai'
import * as anthropic from 'quota-node/anthropic'
import { ROUTES, quotaFetch } from 'quota-node/fetch'
import * as openai from 'quota-node/openai'

const gate = new Gate(Policy.fromFile('policy.yaml'))
const who = new Principal({ tenant: 'acme' })

const fetch = quotaFetch(globalThis.fetch, { gate, who: async () => who, unmetered: ['/files'], routes: ROUTES })
const response: Response = await fetch('https://x/v1/chat/completions', { method: 'POST', body: '{}' })
response.body?.cancel()
// @ts-expect-error: somebody has to pay
quotaFetch(globalThis.fetch, { gate })
// @ts-expect-error: a list is wanted
quotaFetch(globalThis.fetch, { gate, who, unmetered: '/files' })

const client: OpenAI = openai.wrap(new OpenAI(), { gate, who })
const text: string | null = (await client.chat.completions.create({ model: 'm', messages: [] })).choices[0]!.message.content
const azure: AzureOpenAI = openai.wrap(new AzureOpenAI({ fetch }), { gate, who: () => who })
// @ts-expect-error: no client
openai.wrap({}, { gate, who })
const claude: Anthropic = anthropic.wrap(new Anthropic(), { gate, who })
// @ts-expect-error: somebody has to pay
anthropic.wrap(claude, { gate })
export { text, azure }

declare const model: LanguageModelV3
const middleware: LanguageModelMiddleware = quotaMiddleware({
  gate,
  who: (params) => (params.maxOutputTokens ? who : who),
  models: (name) => (name === 'm' ? model : undefined),
})
streamText({ model: wrapLanguageModel({ model, middleware }), prompt: 'x' })
// @ts-expect-error: somebody has to pay
quotaMiddleware({ gate })
// @ts-expect-error: models are found by their names
quotaMiddleware({ gate, who, models: { m: model } })
