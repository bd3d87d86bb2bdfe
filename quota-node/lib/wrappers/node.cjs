'use strict'
// The gate in front of handlers of Node's own HTTP server: what Express and Fastify have in common.

const { Visit, Body, BODY_MS } = require('./door.cjs')
const { Passage, isEvents, joined } = require('./reading.cjs')

/** The asker has left: nobody is there to be answered. */
class Gone extends Error {}

/**
 * Lets a request in. Gives what was admitted, from then on metered on its way out; or the `answer` that it is refused
 * with; or nothing where its asker has left. `asked` is what `who` is called with, `given` a body that was read before,
 * `payload` the stream that it is to be read from.
 */
async function enter(door, route, req, res, { asked = req, given, payload = req, maxBody = door.maxBody } = {}) {
  const visit = new Visit(door, route, (name) => single(req.headers[name]))
  const gone = new AbortController()
  const leave = () => gone.abort(new Gone('the asker has left'))
  if (res.destroyed) leave()
  res.once('close', leave)
  let admitted
  try {
    const body = () => given ?? read(payload, req.headers, maxBody, gone.signal)
    admitted = await visit.admitted(asked, body, gone.signal)
  } catch (error) {
    if (error instanceof Gone) return {}
    return { answer: refusal(visit.answer(error), req) }
  } finally {
    res.off('close', leave)
  }
  handOn(req, admitted)
  meter(res, admitted)
  return { admitted }
}

/** What is left of a body that is not read to its end has to go with the connection. */
function refusal(answer, { httpVersionMajor }) {
  if (answer.status === 413 && httpVersionMajor === 1) answer.headers.connection = 'close'
  return answer
}

const single = (value) => (Array.isArray(value) ? value[0] : value)

/** The whole body, if it is not too large and comes in time. */
function read(payload, headers, most, signal) {
  const body = new Body(most, { length: headers['content-length'], encoding: headers['content-encoding'] })
  // Of one that somebody has read without keeping it nothing will come.
  if (body.isExcessive || payload.readableEnded) return body.whole()
  return new Promise((resolve, reject) => {
    const over = (end) => {
      clearTimeout(timer)
      payload.off('data', add).off('end', all).off('error', left)
      signal.removeEventListener('abort', left)
      try {
        resolve(end())
      } catch (error) {
        reject(error)
      }
    }
    const all = () => over(() => body.whole())
    const add = (piece) => {
      body.add(piece)
      if (body.isExcessive) all()
    }
    const left = () =>
      over(() => {
        throw signal.aborted ? signal.reason : new Gone('the asker has left')
      })
    const late = () =>
      over(() => {
        throw Body.late()
      })
    const timer = setTimeout(late, BODY_MS)
    payload.on('data', add).on('end', all).on('error', left)
    signal.addEventListener('abort', left)
  })
}

/** Makes the headers those of the body as it is now. Answers that are not compressed can be read as they pass. */
function handOn(req, { quota }) {
  const { headers } = req
  delete headers['transfer-encoding']
  headers['content-length'] = String(quota.body.length)
  headers['accept-encoding'] = 'identity'
}

/** Reads the answer while the handler writes it, and ends the lease by it. */
function meter(res, { call, stripUsage, headers }) {
  const { writeHead, write, end } = res
  let passage
  let isPassing = false

  // Calls of the response's own may call what stands in their place.
  const through = (method, ...args) => {
    isPassing = true
    try {
      return method.apply(res, args)
    } finally {
      isPassing = false
    }
  }

  const begin = (status) => {
    if (passage) return
    const type = text(res.getHeader('content-type'))
    const length = text(res.getHeader('content-length'))
    passage = new Passage(call, {
      status,
      type,
      encoding: text(res.getHeader('content-encoding')),
      length: length === undefined ? undefined : Number(length),
      stripUsage,
    })
    for (const [name, value] of Object.entries(headers())) res.setHeader(name, value)
    // What is taken out of a stream or ends it early changes its length.
    if (isEvents(type)) res.removeHeader('content-length')
  }

  res.writeHead = (status, ...rest) => {
    const reason = typeof rest[0] === 'string' ? [rest.shift()] : []
    for (const [name, value] of fields(rest[0])) res.setHeader(name, value)
    begin(status)
    return writeHead.call(res, status, ...reason)
  }

  res.write = (piece, ...rest) => {
    // What is no piece is refused as ever.
    if (isPassing || !isPiece(piece)) return write.call(res, piece, ...rest)
    const [encoding, done] = typeof rest[0] === 'function' ? [undefined, rest[0]] : rest
    if (passage?.isCut) {
      if (done) process.nextTick(done, new Error('the answer has been ended: a limit has no room for more of it'))
      return false
    }
    begin(res.statusCode)
    const passed = passage.pass(bytes(piece, encoding))
    if (passage.isCut) {
      through(end, passed, done)
      return false
    }
    if (passed.length > 0) return through(write, passed, done)
    if (done) process.nextTick(done)
    return !res.writableNeedDrain
  }

  res.end = (...rest) => {
    if (isPassing) return end.apply(res, rest)
    const done = rest.findLast((one) => typeof one === 'function')
    const [piece, encoding] = rest.filter((one) => one !== done)
    if (piece != null && !isPiece(piece)) return end.apply(res, rest)
    if (passage?.isCut) return res
    begin(res.statusCode)
    let last = piece == null ? Buffer.alloc(0) : passage.pass(bytes(piece, encoding))
    if (!passage.isCut) last = joined(last, passage.end())
    return last.length > 0 ? through(end, last, done) : through(end, done)
  }

  res.once('close', () => {
    if (passage) passage.broke(true)
    else call.dropped()
  })
}

const text = (value) => (value === undefined ? undefined : String(value))

const isPiece = (value) => typeof value === 'string' || value instanceof Uint8Array

function bytes(piece, encoding) {
  return typeof piece === 'string' ? Buffer.from(piece, typeof encoding === 'string' ? encoding : 'utf8') : piece
}

/** Names and values of headers as `writeHead` takes them. */
function fields(headers) {
  if (headers == null) return []
  if (!Array.isArray(headers)) return Object.entries(headers)
  const pairs = Array.isArray(headers[0]) ? headers : headers.flatMap((name, at) => (at % 2 ? [] : [[name, headers[at + 1]]]))
  const told = new Map()
  for (const [name, value] of pairs) told.set(name, told.has(name) ? [told.get(name), value].flat() : value)
  return told
}

module.exports = { enter }
