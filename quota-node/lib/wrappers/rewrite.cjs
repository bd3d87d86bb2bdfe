'use strict'
// The body for the upstream: the asker's, with the model, bound and tools that were agreed. What is not changed stays as it
// is. Of a body that can't be changed a `RequestError` tells why.

const { RequestError } = require('../errors.cjs')

/** Names by which upstreams let a body bound its output. */
const BOUNDS = ['max_completion_tokens', 'max_output_tokens', 'max_tokens']

/** The least that thinking may be given in Anthropic's manner. */
const MIN_THINKING = 1024

/** What a request was admitted as: the model by the upstream's name, the most output of one choice, and the tools to leave out. */
function agreed(lease, request) {
  return {
    model: lease.upstreamModel,
    most: Math.max(1, Math.floor(lease.maxOutputTokens / Math.max(1, request.choices))),
    disableTools: lease.degradation?.disableTools ?? [],
  }
}

/** The body as it was agreed, and whether usage in the stream has to be kept from the asker, who has not asked for it. */
function rewrite(shape, asked, terms, stream) {
  const body = { ...asked }
  if (shape.dialect === 'gemini') {
    boundGemini(body, terms)
    return { body, stripUsage: false }
  }
  body.model = terms.model
  bound(body, shape.bounds, terms.most)
  if (shape.manner === 'anthropic') boundThinking(body, terms.most)
  if (terms.disableTools.length > 0) removeTools(body, terms.disableTools)
  return { body, stripUsage: stream && shape.usageOnRequest && !askForUsage(body) }
}

function wrong(field, allowed) {
  const found = 'something else'
  return new RequestError(`${field}: allowed: ${allowed}`, { code: 'request_invalid', field, found, allowed })
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value)
const isCount = (value) => Number.isInteger(value) && value >= 0

/** Caps every bound of the endpoint, sets one if there is none, and leaves out those that are not the endpoint's. */
function bound(body, names, most) {
  let bounded = false
  for (const name of BOUNDS) {
    if (!Object.hasOwn(body, name)) continue
    if (isCount(body[name]) && names.includes(name)) {
      body[name] = Math.min(body[name], most)
      bounded = true
    } else {
      delete body[name]
    }
  }
  if (names.length > 0 && !bounded) body[names[0]] = most
}

/** Caps every bound, in either spelling; sets one if there is none. */
function boundGemini(body, { most, disableTools }) {
  let bounded = false
  for (const name of ['generationConfig', 'generation_config']) {
    if (!Object.hasOwn(body, name) || body[name] === null) continue
    if (!isObject(body[name])) throw wrong(name, 'an object')
    const config = (body[name] = { ...body[name] })
    for (const limit of ['maxOutputTokens', 'max_output_tokens']) {
      if (!Object.hasOwn(config, limit)) continue
      if (isCount(config[limit])) {
        config[limit] = Math.min(config[limit], most)
        bounded = true
      } else delete config[limit]
    }
  }
  if (!bounded) {
    const name = isObject(body.generation_config) ? 'generation_config' : 'generationConfig'
    body[name] = { ...body[name], maxOutputTokens: most }
  }
  if (disableTools.length > 0 && body.tools != null) body.tools = keptOfGemini(body.tools, disableTools)
}

function keptOfGemini(tools, names) {
  if (!Array.isArray(tools)) throw wrong('tools', 'a list')
  return tools.flatMap((tool) => {
    if (!isObject(tool)) return [tool]
    const kept = Object.entries(tool).flatMap(([name, value]) => {
      if (names.includes(name)) return []
      if (!['functionDeclarations', 'function_declarations'].includes(name) || !Array.isArray(value)) return [[name, value]]
      const left = value.filter((one) => !isNamed(one, names))
      return left.length > 0 ? [[name, left]] : []
    })
    return kept.length > 0 ? [Object.fromEntries(kept)] : []
  })
}

/** Thinking is part of the output and has to be given less than all of it: what was agreed may be less than was asked. */
function boundThinking(body, most) {
  const { thinking } = body
  if (thinking == null) return
  if (!isObject(thinking)) throw wrong('thinking', 'an object')
  if (!isCount(thinking.budget_tokens) || thinking.budget_tokens < most) return
  if (most > MIN_THINKING) body.thinking = { ...thinking, budget_tokens: most - 1 }
  else delete body.thinking
}

function isNamed(tool, names) {
  return isObject(tool) && [tool.function?.name, tool.name, tool.type].some((name) => names.includes(name))
}

function removeTools(body, names) {
  const members = [
    ['tools', 'tool_choice'],
    ['functions', 'function_call'],
  ]
  for (const [tools, choice] of members) {
    if (body[tools] == null) continue
    if (!Array.isArray(body[tools])) throw wrong(tools, 'a list')
    body[tools] = body[tools].filter((tool) => !isNamed(tool, names))
    const none = body[tools].length === 0
    if (none) {
      delete body[tools]
      delete body.parallel_tool_calls
    }
    if (none || isNamed(body[choice], names)) delete body[choice]
  }
  if (names.includes('web_search')) delete body.web_search_options
}

/** Makes a stream end with its usage; tells whether the asker wanted that anyway. */
function askForUsage(body) {
  const options = body.stream_options ?? {}
  if (!isObject(options)) throw wrong('stream_options', 'an object')
  body.stream_options = { ...options, include_usage: true }
  return options.include_usage === true
}

module.exports = { agreed, rewrite, isNamed }
