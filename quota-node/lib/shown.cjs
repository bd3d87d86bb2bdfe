'use strict'
// How objects of the addon are shown: their properties live in the addon, so printing and JSON would find nothing.

const { inspect } = require('node:util')

function getters(type) {
  const own = Object.getOwnPropertyDescriptors(type.prototype)
  return Object.keys(own).filter((name) => own[name].get && !name.startsWith('_'))
}

/** Gives a class `toJSON` and a look, of all its properties but those that are hidden. */
function show(type, { hidden = [], name = type.name } = {}) {
  const names = getters(type).filter((name) => !hidden.includes(name))
  const fields = (object) => Object.fromEntries(names.map((name) => [name, object[name]]))
  const method = (value) => ({ value, configurable: true, writable: true })
  Object.defineProperties(type.prototype, {
    toJSON: method(function () {
      return fields(this)
    }),
    [inspect.custom]: method(function (depth, options) {
      return depth < 0 ? `[${name}]` : `${name} ${inspect(fields(this), options)}`
    }),
  })
}

/** Moves what a class has, symbols included, to another class. */
function extend(type, mixin) {
  const { constructor, ...added } = Object.getOwnPropertyDescriptors(mixin.prototype)
  Object.defineProperties(type.prototype, added)
}

module.exports = { show, extend }
