// What the runners of the shared corpus have in common: names as vectors have them, and comparing.

import { fileURLToPath } from 'node:url'
import { isDeepStrictEqual } from 'node:util'

/** The core's tests, which stand beside the package in its tree; where this was copied from there, it has to be said. */
export const CORE = process.env.QUOTA_CORE_TESTS ?? fileURLToPath(new URL('../../../quota-core/tests/', import.meta.url))
export const FIXTURES = `${CORE}/fixtures/`

/** What a case came to is not what it wants. */
export class Failed extends Error {}

/** `max_output_tokens` of `maxOutputTokens`. */
export const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** `maxOutputTokens` of `max_output_tokens`; `inputCacheWrite5m` of `input_cache_write_5m`. */
export const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())

/** An object with its own names changed, not those inside. */
export const renamed = (object, rename) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [rename(name), value]))

/** An object with these members alone; without those that are `null`. */
export const picked = (object, names) =>
  Object.fromEntries(names.map((name) => [name, object[camel(name)]]).filter(([, value]) => value != null))

/** An object without these members. */
export const without = (object, names) =>
  Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)))

export const show = (value) => JSON.stringify(value)

export function equal(what, found, want) {
  if (!isDeepStrictEqual(found, want)) throw new Failed(`${what} is ${show(found)}, not ${show(want)}`)
}

/** Each member of an object, as many elements of a list, equal scalars; in `says`, each part of the text. */
export function holds(at, found, want) {
  const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value)
  if (isObject(found) && isObject(want)) {
    for (const [name, wanted] of Object.entries(want)) {
      if (!(name in found)) throw new Failed(`there is no \`${at}${name}\`, only ${Object.keys(found)}`)
      if (name === 'says' && Array.isArray(wanted)) {
        for (const part of wanted) {
          if (!found[name].includes(part)) throw new Failed(`${at}says ${show(found[name])}, without ${show(part)}`)
        }
      } else {
        holds(`${at}${name}.`, found[name], wanted)
      }
    }
  } else if (Array.isArray(found) && Array.isArray(want) && found.length === want.length) {
    found.forEach((one, number) => holds(`${at}${number}.`, one, want[number]))
  } else {
    equal(at.replace(/\.$/, ''), found, want)
  }
}

/** Runs the steps of a case, and says which of them failed. */
export function each(steps, act, what = 'step') {
  steps.forEach((step, number) => {
    try {
      act(step)
    } catch (error) {
      if (!(error instanceof Failed)) throw error
      throw new Failed(`${what} ${number + 1}: ${error.message}\n    ${show(step)}`)
    }
  })
}
