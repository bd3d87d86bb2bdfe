'use strict'
// A middleware for language models of Vercel's AI SDK.

const { Gate, Outcome, Principal, QuotaError, Refused, Request, Usage } = require('./index.cjs')
const { Call } = require('./wrappers/call.cjs')
const { neverConnected } = require('./wrappers/outgoing.cjs')
const { bodyOf } = require('./wrappers/prompt.cjs')
const { agreed } = require('./wrappers/rewrite.cjs')
const { SHAPES } = require('./wrappers/routes.cjs')

/** What answers are read as: the SDK hides whose they are. */
const SHAPE = { ...SHAPES.openai_chat, answer: 'auto' }

/** Longer waits than this the SDK does not keep: it would ask again before there is room. */
const LONGEST_WAIT_MS = 60_000

const API_CALL_ERROR = Symbol.for('vercel.ai.error.AI_APICallError')

/** A refusal as the SDK's own `APICallError`, which its retries look for; they know one by its marks, not by its class. */
class RefusedCall extends Refused {
  constructor({ message, code, isRetryable, refusal }) {
    const { status, headers, body } = refusal.response('openai')
    const isSoon = refusal.retryAfterMs === null || refusal.retryAfterMs < LONGEST_WAIT_MS
    super(message, { code, isRetryable: isRetryable && isSoon && headers['x-should-retry'] !== 'false' })
    Object.defineProperty(this, 'refusal', { value: refusal, enumerable: false })
    this.url = ''
    this.requestBodyValues = {}
    this.statusCode = status
    this.responseHeaders = headers
    this.responseBody = JSON.stringify(body)
    this.data = body
    this[Symbol.for('vercel.ai.error')] = true
    this[API_CALL_ERROR] = true
  }
}

const asCall = (error) => (error instanceof Refused ? new RefusedCall(error) : error)

function quotaMiddleware({ gate, who, models } = {}) {
  if (!(gate instanceof Gate)) throw new TypeError('gate: a Gate is wanted')
  if (!(who instanceof Principal) && typeof who !== 'function') {
    throw new TypeError('who: a Principal, or a function that gives one, is wanted')
  }
  if (models !== undefined && typeof models !== 'function') throw new TypeError('models: a function of a name is wanted')
  const terms = { gate, who, models }
  return {
    specificationVersion: 'v3',
    middlewareVersion: 'v2',
    wrapGenerate: ({ params, model }) => generate(terms, params, model),
    wrapStream: ({ params, model }) => stream(terms, params, model),
  }
}

/** The call as it was admitted, with the model and the options to make it with. */
async function admitted({ gate, who, models }, params, model, isStream) {
  const principal = typeof who === 'function' ? await who(params) : who
  if (!(principal instanceof Principal)) throw new TypeError('who: it gave no Principal')
  const request = Request.fromBody('openai_chat', bodyOf(params, model.modelId, isStream))
  let lease
  try {
    lease = await gate.acquire(principal, request, { signal: params.abortSignal })
  } catch (error) {
    throw asCall(error)
  }
  const call = new Call(lease, SHAPE)
  try {
    const name = lease.upstreamModel
    const target = name === model.modelId ? model : other(models, name)
    const made = lesser(params, agreed(lease, request))
    params.abortSignal?.throwIfAborted()
    if (!call.sent()) throw new QuotaError("the request's reservation ended before it was sent", { code: 'lease_lost' })
    return { call, target, made }
  } catch (error) {
    call.neverSent()
    throw error
  }
}

function other(models, name) {
  const model = models?.(name)
  if (!model) throw new QuotaError(`\`models\` gives no model ${name}, which was agreed`, { code: 'model_unavailable' })
  return model
}

/** The options with the bound and the tools that were agreed. */
function lesser(params, { most, disableTools }) {
  const made = { ...params, maxOutputTokens: Math.min(params.maxOutputTokens ?? most, most) }
  if (disableTools.length === 0 || !params.tools) return made
  const isLeft = ({ name, id }) => !disableTools.includes(name) && !disableTools.includes(id)
  made.tools = params.tools.filter(isLeft)
  if (made.tools.length === 0) delete made.tools
  if (!made.tools || disableTools.includes(params.toolChoice?.toolName)) delete made.toolChoice
  return made
}

async function generate(terms, params, model) {
  const { call, target, made } = await admitted(terms, params, model, false)
  const result = await answered(call, params, () => target.doGenerate(made))
  const usage = usageOf(result.usage)
  if (usage) call.finish(Outcome.final(usage))
  else call.noUsage()
  return result
}

async function stream(terms, params, model) {
  const { call, target, made } = await admitted(terms, params, model, true)
  const result = await answered(call, params, () => target.doStream(made))
  return { ...result, stream: metered(call, result.stream) }
}

/** What the model answers; where it does not, the call ends by why. */
async function answered(call, { abortSignal }, ask) {
  try {
    return await ask()
  } catch (error) {
    const status = error?.[API_CALL_ERROR] === true ? error.statusCode : undefined
    if (status === 429 || status === 503) call.lease.poolRefused()
    if (Number.isInteger(status)) call.answered(status, error.responseBody)
    else if (neverConnected(error)) call.finish(Outcome.notRun())
    else if (abortSignal?.aborted) call.dropped()
    else call.failed()
    throw error
  }
}

/** The parts of a stream, read one by one when they are asked for. */
function metered(call, parts) {
  const reader = parts.getReader()
  const meter = call.lease.stream('openai_chat')
  const end = () => void call.endStream(meter)
  const next = async () => {
    try {
      return await reader.read()
    } catch (error) {
      end()
      throw error
    }
  }
  const pull = async (controller) => {
    const { done, value } = await next()
    if (done) {
      end()
      return controller.close()
    }
    try {
      count(call, meter, value)
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      end()
      controller.enqueue({ type: 'error', error: asCall(error) })
      controller.close()
      return reader.cancel()
    }
    controller.enqueue(value)
  }
  const cancel = (reason) => {
    end()
    return reader.cancel(reason)
  }
  // Nothing is read before it is asked for.
  return new ReadableStream({ pull, cancel }, { highWaterMark: 0 })
}

const DELTAS = ['text-delta', 'reasoning-delta', 'tool-input-delta']

/** Counts a part, and ends the call with the last one. Throws `Refused` where the answer has to end. */
function count(call, meter, part) {
  if (DELTAS.includes(part.type)) {
    const content = part.delta
    meter.feed(Buffer.from(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`))
    meter.keep()
  } else if (part.type === 'finish') {
    const usage = usageOf(part.usage)
    if (usage) call.finish(Outcome.final(usage))
    else call.endStream(meter)
  }
}

/** The usage of any of the specifications; `null` where the output is unknown. */
function usageOf(told) {
  const { inputTokens: input, outputTokens: output } = told ?? {}
  const isFlat = typeof (output ?? 0) === 'number' && typeof (input ?? 0) === 'number'
  // The second specification counts what is cached in the input and reasoning in the output.
  const given = isFlat ? { total: input, cacheRead: told?.cachedInputTokens } : (input ?? {})
  const made = isFlat ? { total: output, reasoning: told?.reasoningTokens } : (output ?? {})
  if (!isCount(made.total)) return null
  const [read, write, reasoning] = [given.cacheRead, given.cacheWrite, made.reasoning].map((n) => (isCount(n) ? n : 0))
  return new Usage({
    inputUncached: isCount(given.total) ? Math.max(0, given.total - read - write) : 0,
    inputCacheRead: read,
    inputCacheWriteOther: write,
    outputText: Math.max(0, made.total - reasoning),
    outputReasoning: Math.min(reasoning, made.total),
    inputMissing: !isCount(given.total),
    requests: 1,
  })
}

const isCount = (value) => Number.isSafeInteger(value) && value >= 0

module.exports = { quotaMiddleware }
