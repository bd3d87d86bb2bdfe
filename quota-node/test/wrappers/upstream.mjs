// An upstream on loopback that answers as it is told to, in OpenAI's, Anthropic's and Gemini's manner.

import { once } from 'node:events'
import { createServer } from 'node:http'
import { gzipSync } from 'node:zlib'

/** What every answer reports. */
export const INPUT = 11
export const OUTPUT = 7
/** How many pieces a stream's text comes in, unless it is said. */
const PIECES = 4

const sse = (event) => `data: ${JSON.stringify(event)}\n\n`
const named = (event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
const repeat = (length, make) => Array.from({ length }, make)
const used = { prompt_tokens: INPUT, completion_tokens: OUTPUT, total_tokens: INPUT + OUTPUT }

function chat({ stream, usage, words, pieces, padding }) {
  const common = { id: 'c1', created: 1, model: 'm', ...(padding && { padding: 'x'.repeat(padding) }) }
  if (!stream) {
    const message = { role: 'assistant', content: 'word '.repeat(pieces), refusal: null }
    const choices = [{ index: 0, message, finish_reason: 'stop', logprobs: null }]
    return { ...common, object: 'chat.completion', choices, ...(usage && { usage: used }) }
  }
  const chunk = (delta, finish_reason = null) => ({
    ...common,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason }],
  })
  const events = repeat(pieces, () => chunk({ role: 'assistant', content: 'word '.repeat(words) }))
  events.push(chunk({}, 'stop'))
  if (usage) events.push({ ...common, object: 'chat.completion.chunk', choices: [], usage: used })
  return [...events.map(sse), 'data: [DONE]\n\n']
}

function completion({ stream, usage, words, pieces }) {
  const choice = { index: 0, text: 'word '.repeat(words), finish_reason: 'stop', logprobs: null }
  const common = { id: 'c1', object: 'text_completion', created: 1, model: 'm' }
  if (!stream) return { ...common, choices: [choice], usage: used }
  const events = repeat(pieces, () => ({ ...common, choices: [choice] }))
  if (usage) events.push({ ...common, choices: [], usage: used })
  return [...events.map(sse), 'data: [DONE]\n\n']
}

function responses({ stream, usage, words, pieces }) {
  const details = { input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } }
  const told = { input_tokens: INPUT, output_tokens: OUTPUT, total_tokens: INPUT + OUTPUT, ...details }
  const content = [{ type: 'output_text', text: 'word', annotations: [] }]
  const output = [{ type: 'message', id: 'i1', role: 'assistant', status: 'completed', content }]
  const common = { id: 'r1', object: 'response', created_at: 1, model: 'm', tools: [], error: null }
  const whole = { ...common, status: 'completed', output, usage: usage ? told : null }
  if (!stream) return whole
  const delta = { type: 'response.output_text.delta', item_id: 'i1', output_index: 0, content_index: 0 }
  const events = [
    { type: 'response.created', response: { ...common, status: 'in_progress', output: [] } },
    { type: 'response.output_item.added', output_index: 0, item: { ...output[0], status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', item_id: 'i1', output_index: 0, content_index: 0, part: { ...content[0], text: '' } },
    ...repeat(pieces, () => ({ ...delta, delta: 'word '.repeat(words) })),
    { type: 'response.completed', response: whole },
  ]
  return events.map((event, sequence_number) => named({ ...event, sequence_number }))
}

function messages({ stream, usage, words, pieces }) {
  const common = { id: 'm1', type: 'message', role: 'assistant', model: 'm', stop_sequence: null }
  if (!stream) {
    const told = usage && { usage: { input_tokens: INPUT, output_tokens: OUTPUT } }
    return { ...common, content: [{ type: 'text', text: 'word' }], stop_reason: 'end_turn', ...told }
  }
  const start = { ...common, content: [], stop_reason: null, usage: { input_tokens: INPUT, output_tokens: 1 } }
  const delta = { type: 'text_delta', text: 'word '.repeat(words) }
  return [
    { type: 'message_start', message: start },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ...repeat(pieces, () => ({ type: 'content_block_delta', index: 0, delta })),
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: OUTPUT },
    },
    { type: 'message_stop' },
  ].map(named)
}

function embeddings() {
  const data = [{ object: 'embedding', index: 0, embedding: [0.5] }]
  return { object: 'list', model: 'm', data, usage: { prompt_tokens: INPUT, total_tokens: INPUT } }
}

function gemini({ stream, words, pieces }) {
  const usageMetadata = { promptTokenCount: INPUT, candidatesTokenCount: OUTPUT, totalTokenCount: INPUT + OUTPUT }
  const content = { role: 'model', parts: [{ text: 'word '.repeat(words) }] }
  const answer = { candidates: [{ content, finishReason: 'STOP', index: 0 }], usageMetadata }
  return stream ? repeat(pieces, () => sse(answer)) : answer
}

const ANSWERS = [
  ['/chat/completions', chat],
  ['/completions', completion],
  ['/responses', responses],
  ['/messages', messages],
  ['/embeddings', embeddings],
  [':generateContent', gemini],
  [':streamGenerateContent', gemini],
]

/**
 * What the next requests meet: `steps`, then plain answers. A step has a `status`, whether there is `usage`, `gzip`, how
 * many `pieces` of how many `words` a stream has, bytes of `padding` in each, more `headers`, and `how`: `hang` (no head), `hangMidway` (two pieces, then nothing), `break`
 * (no head), `breakMidway`. `go()` lets go on what hangs. What has come is in `calls`.
 */
export class Upstream {
  steps = []
  calls = []
  /** Answers on which the other side has hung up before their end. */
  left = 0
  /** Events that were sent, and whether the next one waits for the other side to read. */
  sent = 0
  isBlocked = false

  static async start() {
    const upstream = new Upstream()
    upstream.reset()
    upstream.server = createServer((req, res) => upstream.#meet(req, res))
    upstream.server.listen(0, '127.0.0.1')
    await once(upstream.server, 'listening')
    upstream.url = `http://127.0.0.1:${upstream.server.address().port}`
    return upstream
  }

  async stop() {
    this.reset()
    this.server.closeAllConnections()
    this.server.close()
    await once(this.server, 'close')
  }

  reset() {
    this.go?.()
    this.going = new Promise((go) => (this.go = go))
    this.steps = []
    this.calls = []
    this.left = 0
    this.sent = 0
    this.isBlocked = false
  }

  async #meet(req, res) {
    const going = this.going
    const chunks = []
    for await (const chunk of req) chunks.push(chunk)
    const body = JSON.parse(Buffer.concat(chunks).toString() || 'null')
    const [path] = req.url.split('?')
    this.calls.push({ path, body, headers: req.headers, method: req.method })
    res.on('close', () => (this.left += res.writableFinished ? 0 : 1))
    const step = { status: 200, usage: true, pieces: PIECES, words: 1, headers: {}, ...this.steps.shift() }
    if (step.how === 'hang') await going
    if (step.how === 'break') return req.socket.destroy()
    const make = ANSWERS.find(([end]) => path.endsWith(end))?.[1]
    if (step.status !== 200 || !make) {
      const error = { message: 'no', type: 't', code: 'c', param: null }
      return this.#whole(res, { ...step, status: make ? step.status : 404 }, { type: 'error', error })
    }
    const stream = body?.stream ?? path.endsWith(':streamGenerateContent')
    const asked = ![chat, completion].includes(make) || !stream || (body?.stream_options?.include_usage ?? false)
    const answer = make({ ...step, stream, usage: step.usage && asked })
    if (Array.isArray(answer)) await this.#stream(req, res, step, answer, going)
    else this.#whole(res, step, answer)
  }

  #whole(res, step, answer) {
    const text = JSON.stringify(answer)
    const bytes = step.gzip ? gzipSync(text) : Buffer.from(text)
    const encoding = step.gzip ? { 'content-encoding': 'gzip' } : {}
    const headers = { 'content-type': 'application/json', 'content-length': bytes.length, ...encoding, ...step.headers }
    res.writeHead(step.status, headers).end(bytes)
  }

  async #stream(req, res, step, events, going) {
    const encoding = step.gzip ? { 'content-encoding': 'gzip' } : {}
    res.writeHead(200, { 'content-type': 'text/event-stream', ...encoding, ...step.headers })
    if (step.gzip) return res.end(gzipSync(events.join('')))
    const closed = once(res, 'close')
    for (const [number, event] of events.entries()) {
      if (number === 2 && step.how === 'hangMidway') await going
      if (number === 2 && step.how === 'breakMidway') return req.socket.destroy()
      this.sent += 1
      this.isBlocked = true
      await Promise.race([closed, new Promise((go) => res.write(event, go))])
      this.isBlocked = false
    }
    res.end()
  }
}
