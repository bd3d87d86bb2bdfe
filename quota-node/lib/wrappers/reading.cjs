'use strict'
// Reading an answer for its usage while it passes through a host; the lease ends by it.

const zlib = require('node:zlib')
const { Refused } = require('../errors.cjs')

/** The largest answer that is kept to be read for its usage, in bytes. */
const MAX_KEPT = 64 << 20

const NOTHING = Buffer.alloc(0)

const DECODERS = {
  gzip: zlib.gunzipSync,
  'x-gzip': zlib.gunzipSync,
  deflate: zlib.inflateSync,
  br: zlib.brotliDecompressSync,
}

/** Bytes as they were before they were compressed, also of one that broke off; `undefined` where they can't be read. */
function decoded(bytes, encoding) {
  if (encoding === 'identity') return bytes
  if (!Object.hasOwn(DECODERS, encoding)) return undefined
  const brotli = encoding === 'br'
  const finishFlush = brotli ? zlib.constants.BROTLI_OPERATION_FLUSH : zlib.constants.Z_SYNC_FLUSH
  try {
    return DECODERS[encoding](bytes, { finishFlush, maxOutputLength: MAX_KEPT })
  } catch {
    // In another encoding than was said, or too long: it tells nothing.
    return undefined
  }
}

/** Events, metered one by one. */
class Events {
  // Whether its last event has come, by which it was settled. What follows means nothing.
  #isDone = false

  constructor(call, stream) {
    this.call = call
    this.stream = stream
  }

  /** The bytes that go on. Throws `Refused` where the answer has to end. */
  feed(piece) {
    if (this.#isDone) return piece
    const passed = this.stream.feed(piece)
    if (this.stream.isDone) {
      this.#isDone = true
      return joined(passed, this.call.endStream(this.stream))
    }
    this.stream.keep()
    return passed
  }

  /** It came to its end, the lease is to end: the bytes that go on last. */
  over() {
    return this.#isDone ? NOTHING : this.call.endStream(this.stream)
  }

  /** It did not: since the asker has left, or since the upstream has failed. */
  broke() {
    this.call.endStream(this.stream)
  }
}

/** An answer that is read when it is there. */
class Whole {
  #pieces = []
  #size = 0

  constructor(call, status, encoding, isStream) {
    this.call = call
    this.status = status
    this.encoding = encoding
    this.isStream = isStream
  }

  feed(piece) {
    this.#size += piece.length
    if (this.#size <= MAX_KEPT) this.#pieces.push(piece)
    else this.#pieces = []
    return piece
  }

  over() {
    if (this.call.isOver) return NOTHING
    const body = this.#size > MAX_KEPT ? undefined : decoded(Buffer.concat(this.#pieces), this.encoding)
    this.#pieces = []
    if (this.isStream) this.#stream(body ?? NOTHING)
    else this.call.answered(this.status, body)
    return NOTHING
  }

  broke(left) {
    const { call, status } = this
    // The status of an error says enough: clients that try again don't read its body.
    if (status < 200 || status > 299) call.answered(status)
    else if (this.isStream) this.over()
    else if (left) call.dropped()
    else call.failed()
  }

  #stream(body) {
    const stream = meter(this.call)
    if (!stream) return this.call.left()
    stream.feed(body)
    this.call.endStream(stream)
  }
}

/** A stream that the handler meters by itself. */
class Theirs {
  constructor(call) {
    this.call = call
  }

  feed(piece) {
    return piece
  }

  over() {
    this.call.left()
    return NOTHING
  }

  broke() {
    this.call.left()
  }
}

/** The meter of a lease; `undefined` where the handler has taken it, since there is one at most. */
function meter(call, stripUsage) {
  try {
    return call.lease.stream(call.shape.answer, { stripUsage })
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    return undefined
  }
}

/** What an answer with such a head is read by. */
function reading(call, { status, type, encoding, stripUsage }) {
  if (status === 429 || status === 503) call.lease.poolRefused()
  const plain = (encoding ?? '').trim().toLowerCase() || 'identity'
  const isStream = status >= 200 && status <= 299 && isEvents(type)
  if (!isStream || plain !== 'identity') return new Whole(call, status, plain, isStream)
  const stream = meter(call, stripUsage)
  return stream ? new Events(call, stream) : new Theirs(call)
}

/** Whether this is the type of a stream of events. */
function isEvents(type) {
  return (type ?? '').trim().toLowerCase().startsWith('text/event-stream')
}

/**
 * An answer on its way to the asker. The lease ends with its last byte, before that is passed on: who has read it finds
 * the slot free.
 */
class Passage {
  #call
  #head
  #found
  #isLineEnded = true
  #left

  /** Of an answer with this head: `status`, `type`, `encoding`, `length` where it is known, and `stripUsage`. */
  constructor(call, head) {
    this.#call = call
    this.#head = head
    this.#left = isEvents(head.type) ? undefined : head.length
    // Whether it was ended here, since a limit has no room for more of it.
    this.isCut = false
  }

  // Not before it is needed: up to its first bytes a handler may meter its stream by itself.
  get #read() {
    return (this.#found ??= reading(this.#call, this.#head))
  }

  /** The bytes that go on for these. */
  pass(piece) {
    if (this.#left !== undefined) this.#left -= piece.length
    let passed
    try {
      passed = this.#read.feed(piece)
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      return this.#cut(error)
    }
    if (this.#left === 0) passed = joined(passed, this.end())
    if (passed.length > 0) this.#isLineEnded = passed.at(-1) === 10 || passed.at(-1) === 13
    return passed
  }

  /** The bytes that go on after the last ones. */
  end() {
    return this.#read.over()
  }

  /** It did not come to its end: since the asker has left, or since the upstream has failed. */
  broke(left) {
    this.#read.broke(left)
  }

  #cut(refused) {
    this.isCut = true
    const told = Buffer.from(refused.refusal.streamError(this.#call.shape.manner))
    // An event that has been passed on in part ends here.
    const start = this.#isLineEnded ? NOTHING : Buffer.from('\n\n')
    return joined(start, this.end(), told)
  }
}

function joined(...parts) {
  const some = parts.filter((part) => part.length > 0)
  return some.length === 1 ? some[0] : Buffer.concat(some)
}

module.exports = { Passage, isEvents, joined }
