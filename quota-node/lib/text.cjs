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
    if (cause instanceof RangeError) throw new InputError('nested too deep to be written as JSON', { code: 'too_deep' })
    // A BigInt, an object that holds itself, or what a `toJSON` has thrown.
    throw new TypeError("this object can't be written as JSON", { cause })
  }
  if (text === undefined) throw new TypeError(`a JSON text or an object is wanted, not ${typeof value}`)
  return text
}

module.exports = { document, object }
