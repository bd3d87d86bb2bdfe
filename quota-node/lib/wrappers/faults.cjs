'use strict'
// Answers to what is wrong with a request itself, in its asker's manner. Refusals of the gate have their own.

const { InputError, Refused, RequestError } = require('../errors.cjs')

const OPENAI = { 403: 'permission_error', 429: 'requests' }
const ANTHROPIC = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
}

const GEMINI = {
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  408: 'DEADLINE_EXCEEDED',
  409: 'ABORTED',
  429: 'RESOURCE_EXHAUSTED',
  503: 'UNAVAILABLE',
}

/** A request that is answered without the gate's word. */
class Fault extends Error {
  constructor(status, code, message, { param = null, retry } = {}) {
    super(message)
    this.status = status
    this.code = code
    this.param = param
    // What `x-should-retry` tells clients.
    this.retry = retry
  }

  response(manner) {
    const { status, code, message, param } = this
    const headers = this.retry === undefined ? {} : { 'x-should-retry': String(this.retry) }
    const other = (server) => (status >= 500 ? server : 'invalid_request_error')
    if (manner === 'anthropic') {
      const error = { type: ANTHROPIC[status] ?? other('api_error'), message, details: { error_code: code } }
      return { status, headers, body: { type: 'error', error } }
    }
    if (manner === 'gemini') {
      const kind = GEMINI[status] ?? (status >= 500 ? 'INTERNAL' : 'INVALID_ARGUMENT')
      const info = { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: code.toUpperCase(), domain: 'quota' }
      return { status, headers, body: { error: { code: status, message, status: kind, details: [info] } } }
    }
    return { status, headers, body: { error: { message, type: OPENAI[status] ?? other('server_error'), param, code } } }
  }
}

/** What an error of admitting is answered with; what is no answer to the asker is thrown on. */
function answerTo(error, manner) {
  if (error instanceof Refused) return error.refusal.response(manner)
  if (error instanceof Fault) return error.response(manner)
  if (error instanceof InputError) return malformed(error).response(manner)
  throw error
}

function malformed(error) {
  const param = error instanceof RequestError ? error.field : null
  return new Fault(400, 'request_invalid', `The request is malformed: ${error.message}.`, { param })
}

module.exports = { Fault, answerTo }
