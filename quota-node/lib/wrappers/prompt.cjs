'use strict'
// A call of the AI SDK as the body of a chat completion, which the core estimates; nothing but the estimate is made of it.

/** The body that a language model's call options would be. */
function bodyOf(params, model, stream) {
  const body = { model, stream, messages: (params.prompt ?? []).map(message) }
  if (params.maxOutputTokens != null) body.max_completion_tokens = params.maxOutputTokens
  if (params.tools?.length > 0) body.tools = params.tools.map(tool)
  const { type, schema, name = 'answer' } = params.responseFormat ?? {}
  if (type === 'json' && schema) body.response_format = { type: 'json_schema', json_schema: { name, schema } }
  return body
}

function message({ role, content }) {
  if (typeof content === 'string') return { role, content }
  const calls = content.filter((part) => part.type === 'tool-call').map(call)
  const blocks = content.flatMap(block)
  return { role, content: blocks, ...(calls.length > 0 && { tool_calls: calls }) }
}

function call({ toolCallId, toolName, input }) {
  return { id: toolCallId, type: 'function', function: { name: toolName, arguments: textOf(input) } }
}

/** What a part is counted as; those that carry no input are nothing. */
function block(part) {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return [{ type: 'text', text: part.text }]
    case 'file':
    case 'reasoning-file':
      return [file(part.data, part.mediaType)]
    case 'tool-result':
      return result(part.output)
    default:
      return []
  }
}

function result({ type, value, reason }) {
  if (type !== 'content') return [{ type: 'text', text: textOf(value ?? reason ?? '') }]
  return value.flatMap((part) => {
    if (part.type === 'text') return [{ type: 'text', text: part.text }]
    return part.data === undefined ? [] : [file(part.data, part.mediaType)]
  })
}

/** Data as base64, bytes, an address, or the fourth specification's object of one of them. */
function file(data, mediaType = '') {
  const inner = data !== null && typeof data === 'object' && 'type' in data ? (data.data ?? data.text ?? '') : data
  if (data?.type === 'text') return { type: 'text', text: inner }
  // What is fetched from its address by the provider is of unknown size.
  const isHere = inner instanceof Uint8Array || (typeof inner === 'string' && !/^https?:/.test(inner))
  const text = inner instanceof Uint8Array ? Buffer.from(inner).toString('base64') : inner
  return { inlineData: { mimeType: mediaType, data: isHere ? text : '' } }
}

function tool({ type, name, description, inputSchema }) {
  return type === 'function'
    ? { type, function: { name, description, parameters: inputSchema } }
    : { type: String(name) }
}

const textOf = (value) => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''))

module.exports = { bodyOf }
