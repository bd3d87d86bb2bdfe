'use strict'
// The addon of this machine, loaded once for each thread, with errors that JavaScript would have: what is of a wrong type is
// a `TypeError`, which shows nothing of the value.

const { make } = require('./errors.cjs')

function name() {
  const { platform, arch } = process
  if (platform === 'win32') return `${platform}-${arch}-msvc`
  if (platform !== 'linux') return `${platform}-${arch}`
  const glibc = process.report.getReport().header.glibcVersionRuntime
  return `${platform}-${arch}-${glibc ? 'gnu' : 'musl'}`
}

function load() {
  const file = `../quota-node.${name()}.node`
  try {
    return require(file)
  } catch (cause) {
    throw new Error(`quota-node has no addon for this machine that loads: ${file}`, { cause })
  }
}

/** What each code of napi's says that is wanted. */
const WANTED = {
  StringExpected: 'a string',
  NumberExpected: 'a number',
  BooleanExpected: 'a boolean',
  ArrayExpected: 'an array',
  FunctionExpected: 'a function',
  ObjectExpected: 'an object',
}

/** The error of the addon, as a `TypeError` where napi has made it: those that the core's answers become have a class. */
function typed(error, where) {
  if (Object.getPrototypeOf(error) !== Error.prototype) return error
  const { code, message } = error
  const [, field = where] = / on (?:\w+\.)*(\w+)(?: on [\w.]+)*$/.exec(message) ?? []
  const says = (what) => new TypeError(`${field}: ${what}`)
  const missing = /^Missing field `(\w+)`/.exec(message)
  if (missing) return new TypeError(`${missing[1]} is wanted`)
  const [, found] = /JavaScript value `(\w+)/.exec(message) ?? []
  if (WANTED[code]) return says(`${WANTED[code]} is wanted${found ? `, not ${found.toLowerCase()}` : ''}`)
  if (code !== 'InvalidArg') return error
  const [, type] = /`(\w+)`/.exec(message) ?? []
  if (/^Failed to (recover|unwrap)|^Value is not an instance/.test(message)) return says(`a ${type} is wanted`)
  if (/TypedArray|^Expected \$name/.test(message)) return says('a Uint8Array is wanted')
  return says(message.replace(/ on [\w.]+/g, ''))
}

/** How a method is called by those who use it. */
function known(name) {
  return name.replace(/^_(?:(?:lease|stream)(?=[A-Z]))?(.)/, (_, first) => first.toLowerCase())
}

function guarded(act, name, self) {
  const where = known(name)
  return function (...args) {
    try {
      return act.apply(self ?? this, args)
    } catch (error) {
      throw typed(error, where)
    }
  }
}

/** The class, with the same prototype: what the addon makes by itself is of it. */
function guardedClass(type) {
  const where = type.name.replace(/^_/, '')
  const made = function (...args) {
    // Without `new`, napi would take the global object for the new one.
    if (!new.target) throw new TypeError(`${where} is made with \`new\``)
    try {
      return Reflect.construct(type, args, new.target)
    } catch (error) {
      if (/no `constructor`/.test(error.message)) throw new TypeError(`${where} is not made with \`new\``)
      throw typed(error, where)
    }
  }
  const { length, prototype, ...statics } = Object.getOwnPropertyDescriptors(type)
  for (const one of [statics, Object.getOwnPropertyDescriptors(type.prototype)]) {
    const self = one === statics ? type : undefined
    for (const [key, property] of Object.entries(one)) {
      if (key === 'constructor' || typeof property.value !== 'function') continue
      Object.defineProperty(self ? made : type.prototype, key, { ...property, value: guarded(property.value, key, self) })
    }
  }
  Object.defineProperty(made, 'name', { value: type.name, configurable: true })
  made.prototype = type.prototype
  Object.defineProperty(made.prototype, 'constructor', { value: made, configurable: true, writable: true })
  return made
}

/** As `guarded`, of a call with at most three arguments that every request makes: of a list of them V8 makes an array. */
function guardedCall(act, name) {
  const where = known(name)
  return (one, two, three) => {
    try {
      return act(one, two, three)
    } catch (error) {
      throw typed(error, where)
    }
  }
}

const addon = load()
const calls = addon._setup(make)

const native = {}
for (const [key, value] of Object.entries(addon)) {
  native[key] = /^_?[A-Z]/.test(key) ? guardedClass(value) : guarded(value, key, addon)
}
for (const [key, value] of Object.entries(calls)) native[key] = guardedCall(value, key)

native._guardedCall = guardedCall

module.exports = native
