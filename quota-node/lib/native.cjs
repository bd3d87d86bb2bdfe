'use strict'
// The addon of this machine, loaded once for each thread.

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

const native = load()
native._setup(make)

module.exports = native
