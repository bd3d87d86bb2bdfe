'use strict'
// What endpoints differ in, and which addresses are theirs.

const { posix } = require('node:path')

/**
 * What each kind of endpoint has of its own, by the dialect of its bodies: how its answers report usage, whose clients call
 * it, the members that bound the output of one choice (the first is set where none is stated), and whether a stream has
 * its usage only if `stream_options` asks for it.
 */
const SHAPES = Object.freeze({
  openai_chat: {
    dialect: 'openai_chat',
    answer: 'openai_chat',
    manner: 'openai',
    bounds: ['max_completion_tokens', 'max_tokens'],
    usageOnRequest: true,
  },
  openai_completions: {
    dialect: 'openai_completions',
    answer: 'openai_chat',
    manner: 'openai',
    bounds: ['max_tokens'],
    usageOnRequest: true,
  },
  openai_responses: {
    dialect: 'openai_responses',
    answer: 'openai_responses',
    manner: 'openai',
    bounds: ['max_output_tokens'],
    usageOnRequest: false,
  },
  openai_embeddings: {
    dialect: 'openai_embeddings',
    answer: 'openai_embeddings',
    manner: 'openai',
    bounds: [],
    usageOnRequest: false,
  },
  anthropic_messages: {
    dialect: 'anthropic_messages',
    answer: 'anthropic_messages',
    manner: 'anthropic',
    bounds: ['max_tokens'],
    usageOnRequest: false,
  },
  gemini: { dialect: 'gemini', answer: 'gemini', manner: 'gemini', bounds: [], usageOnRequest: false },
})

const GEMINI = Object.freeze({
  '/models/{model}:generateContent': 'gemini',
  '/models/{model}:streamGenerateContent': 'gemini',
})

/** The addresses of OpenAI's upstreams, by their end: bases differ. */
const OPENAI = Object.freeze({
  '/chat/completions': 'openai_chat',
  '/completions': 'openai_completions',
  '/responses': 'openai_responses',
  '/embeddings': 'openai_embeddings',
})

const ANTHROPIC = Object.freeze({ '/v1/messages': 'anthropic_messages' })

/** What upstreams may be asked for without spending any quota, by the end of its address. */
const FREE = Object.freeze([
  '/moderations',
  '/chat/completions/{id}',
  '/responses/input_tokens',
  '/responses/{id}/cancel',
  '/v1/messages/count_tokens',
  '/models/{model}:countTokens',
])

/** The addresses that spend quota at a server, by their end. */
const ROUTES = Object.freeze({
  ...Object.fromEntries(Object.entries(OPENAI).map(([end, dialect]) => [`/v1${end}`, dialect])),
  ...ANTHROPIC,
  ...GEMINI,
})

/** The addresses that spend quota at an upstream, by their end. */
const CALLS = Object.freeze({ ...OPENAI, ...ANTHROPIC, ...GEMINI })

/** Matches the end of a path; `{name}` stands for a segment, or what is left of one. */
function pattern(end) {
  const parts = end.split(/\{(\w+)\}/).map((part, at) => {
    return at % 2 ? `(?<${part}>[^/]+)` : part.replace(/[.*+?^$()|[\]\\]/g, '\\$&')
  })
  return new RegExp(`${parts.join('')}$`, 'i')
}

/**
 * A path as the most generous of routers reads it, with and without the parameters of segments, which some leave out: what one
 * of them, or the upstream that a handler forwards it to, would overlook is no way around the gate.
 */
function* readings(path) {
  const url = path.replace(/^[/\\]+/, '/')
  const { pathname } = URL.canParse(url, 'http://host') ? new URL(url, 'http://host') : { pathname: url }
  // Twice: a router decodes it, and so does the upstream.
  const text = tidied(decoded(decoded(pathname)))
  yield text
  if (text.includes(';')) yield tidied(text.replace(/;[^/]*/g, ''))
}

function decoded(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    // Malformed escapes: no router decodes them either.
    return text
  }
}

/** Without empty segments, dots, and what is not seen. */
function tidied(path) {
  const seen = path.replace(/[\x00-\x20\x7f]/g, '').replaceAll('\\', '/')
  return posix.normalize(`/${seen}`).replace(/\/$/, '')
}

/** What is called, and the model that its address names. */
class Route {
  constructor(shape, model, stream) {
    this.shape = shape
    this.model = model
    this.stream = stream
  }

  /** Options of `Request.fromBody` for what stands in the address. */
  get addressed() {
    return this.shape.dialect === 'gemini' ? { model: this.model ?? '', stream: this.stream } : {}
  }

  /** The same address with another model in it. */
  readdressed(url, model) {
    if (this.model === undefined || this.model === model) return url
    const method = this.stream ? ':streamGenerateContent' : ':generateContent'
    return url.replace(/\/[^/?]*(\?|$)/, (_, rest) => `/${encodeURIComponent(model)}${method}${rest}`)
  }
}

/** Finds the route of a path. The longest end that fits is the one that is meant. */
class Routes {
  #known

  constructor(routes) {
    const ends = Object.entries(routes).sort(([one], [other]) => other.length - one.length)
    this.#known = ends.map(([end, dialect]) => {
      const shape = Object.hasOwn(SHAPES, dialect) ? SHAPES[dialect] : undefined
      if (!shape) throw new TypeError(`routes: ${end}: allowed: ${Object.keys(SHAPES).join(', ')}`)
      if (!end.startsWith('/')) throw new TypeError(`routes: ${end}: an address begins with a slash`)
      return { fits: pattern(end), shape, stream: /:stream\w*$/.test(end) }
    })
  }

  of(path) {
    for (const text of readings(path)) {
      for (const { fits, shape, stream } of this.#known) {
        const found = fits.exec(text)
        if (found) return new Route(shape, found.groups?.model, stream)
      }
    }
    return undefined
  }
}

/** Whether a path is one of these, by its end. */
function among(ends) {
  const known = ends.map(pattern)
  return (path) => [...readings(path)].every((text) => known.some((fits) => fits.test(text)))
}

module.exports = { SHAPES, OPENAI, ANTHROPIC, FREE, ROUTES, CALLS, Routes, among }
