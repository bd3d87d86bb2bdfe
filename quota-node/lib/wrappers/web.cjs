'use strict'
// Answers of the Fetch API, metered while they are read.

const { Passage, isEvents } = require('./reading.cjs')

/** The statuses of answers without a body. */
const EMPTY = [101, 103, 204, 205, 304]

/** An answer whose body ends the lease of its call, whichever way it ends. */
function metered(response, call, { stripUsage = false, encoding, headers = {}, signal } = {}) {
  const { status } = response
  const type = response.headers.get('content-type')
  const length = Number(response.headers.get('content-length') ?? NaN)
  const passage = new Passage(call, {
    status,
    type,
    encoding: encoding ?? response.headers.get('content-encoding'),
    length: encoding === undefined && Number.isInteger(length) ? length : undefined,
    stripUsage,
  })
  const told = new Headers(response.headers)
  for (const [name, value] of Object.entries(headers)) told.set(name, value)
  // What is taken out of a stream or ends it early changes its length.
  if (isEvents(type)) told.delete('content-length')
  if (response.body === null) passage.end()
  const body = response.body === null ? null : through(response.body, passage, signal)
  const { statusText } = response
  const made = new Response(EMPTY.includes(status) ? null : body, { status, statusText, headers: told })
  return { response: made, passage }
}

/** The bytes of a body, read one by one when they are asked for. */
function through(body, passage, signal) {
  const reader = body.getReader()
  const next = async () => {
    try {
      return await reader.read()
    } catch (error) {
      passage.broke(signal?.aborted ?? false)
      throw error
    }
  }
  const pull = async (controller) => {
    for (;;) {
      const { done, value } = await next()
      const passed = done ? passage.end() : passage.pass(value)
      if (passed.length > 0) controller.enqueue(passed)
      if (done || passage.isCut) controller.close()
      if (passage.isCut) await reader.cancel()
      if (passed.length > 0 || done) return
    }
  }
  const cancel = (reason) => {
    passage.broke(true)
    return reader.cancel(reason)
  }
  // Nothing is read before it is asked for.
  return new ReadableStream({ pull, cancel }, { highWaterMark: 0 })
}

module.exports = { metered }
