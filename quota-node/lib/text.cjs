'use strict'
// JSON text of what is handed over: the addon reads nothing but text.

const { InputError } = require('./errors.cjs')

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Of a text itself, of bytes as text, of anything else as `JSON.stringify` writes it. */
function document(value) {
  if (typeof value === 'string') return value
  if (!(value instanceof Uint8Array)) return object(value)
  try {
    return utf8.decode(value)
  } catch {
    throw new InputError('this is no JSON: the bytes are no UTF-8', { code: 'json_invalid' })
  }
}

/** Of an object as it stands; a text is a text. */
function object(value) {
  let text
  try {
    text = JSON.stringify(value)
  } catch (cause) {
    if (cause instanceof RangeError && /call stack/.test(cause.message)) throw new InputError('nested too deep to be written as JSON', { code: 'too_deep' })
    // A BigInt, an object that holds itself, or what a `toJSON` has thrown.
    throw new TypeError("this object can't be written as JSON", { cause })
  }
  if (text === undefined) throw new TypeError(`a JSON text or an object is wanted, not ${typeof value}`)
  return wellFormed(text)
}

/**
 * The text with the replacement character for halves of characters, as a string gets it that is sent anywhere as UTF-8: where
 * JavaScript has cut a text in the middle of an emoji, `JSON.stringify` writes an escape that is no JSON to others.
 */
function wellFormed(text) {
  if (!text.includes('\\ud')) return text
  return text.replace(/\\(?:(ud[89a-f][0-9a-f]{2})|.)/g, (escape, half) => (half ? '\ufffd' : escape))
}

/** Whether everybody reads a text as `parsed`: of two members of one name some take the first, and some the last. */
function isPlain(text, parsed) {
  let written = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === 58) written++
    else if (unit === 34) at = endOfString(text, at)
  }
  return written === members(parsed)
}

function endOfString(text, start) {
  let at = start + 1
  for (; text.charCodeAt(at) !== 34; at++) if (text.charCodeAt(at) === 92) at++
  return at
}

function members(value) {
  if (value === null || typeof value !== 'object') return 0
  const inner = Object.values(value)
  return inner.reduce((sum, one) => sum + members(one), Array.isArray(value) ? 0 : inner.length)
}

module.exports = { document, isPlain, object }
