// What the wrappers are as parts of the package: what they load, that they end, and their types.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const HERE = dirname(fileURLToPath(import.meta.url))
const WRAPPERS = ['ai', 'anthropic', 'express', 'fastify', 'fetch', 'hono', 'openai']
const require = createRequire(import.meta.url)
const PACKAGE = dirname(require.resolve('quota-node/package.json'))
/** How long a process may take that does next to nothing, on a machine with other work. */
const LONGEST_MS = 60_000

/** Runs a program to its end. */
async function run(args, cwd = HERE) {
  const child = spawn(process.execPath, args, { cwd, timeout: LONGEST_MS })
  let told = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (told += piece))
  const [code, signal] = await once(child, 'close')
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, told)
  return told
}

/** What a program has loaded that requires nothing else, from the package's folder. */
async function loaded(name) {
  const script = `require('./lib/${name}.cjs'); process.stdout.write(Object.keys(require.cache).join('\\n'))`
  return (await run(['-e', script], PACKAGE)).split('\n').map((file) => relative(PACKAGE, file))
}

for (const name of WRAPPERS) {
  test(`${name} is the same for both kinds of modules`, async () => {
    const required = require(`quota-node/${name}`)
    const imported = await import(`quota-node/${name}`)
    assert.deepEqual(Object.keys(imported).sort(), Object.keys(required).sort())
    for (const key of Object.keys(required)) assert.equal(imported[key], required[key])
  })

  test(`${name} loads no host, and no other wrapper`, async () => {
    const files = await loaded(name)
    assert.ok(files.length > 10)
    for (const file of files) {
      assert.ok(file.startsWith('lib/') || file.endsWith('.node'), file)
      assert.ok(!WRAPPERS.some((other) => other !== name && file === `lib/${other}.cjs`), file)
    }
  })
}

test('quota-node itself loads no wrapper', async () => {
  for (const file of await loaded('index')) assert.ok(!file.includes('wrappers'), file)
})

test('a process ends by itself, also while an answer is on its way', async () => {
  const script = `
    import { quotaFetch } from 'quota-node/fetch'
    import { newGate, principal } from './books.mjs'
    const gate = newGate()
    const upstream = async () => new Response(new ReadableStream({ pull() {} }))
    const fetch = quotaFetch(upstream, { gate, who: principal() })
    const body = JSON.stringify({ model: 'm', messages: [] })
    globalThis.kept = await fetch('http://upstream/v1/chat/completions', { method: 'POST', body })
    process.on('exit', () => console.log(gate.balances(principal()).find(({ limit }) => limit === 'max_inflight').used))
  `
  assert.equal(await run(['--input-type=module', '-e', script]), '1\n')
})

test('a process ends by itself after its server', async () => {
  const script = `
    import { HOSTS } from './servers.mjs'
    import { keyOf, newGate } from './books.mjs'
    for (const start of Object.values(HOSTS)) {
      const gate = newGate()
      const server = await start({}, { gate })
      const headers = { authorization: keyOf(gate), 'content-type': 'application/json', 'x-how': 'text' }
      const body = JSON.stringify({ model: 'm', messages: [] })
      const answer = await fetch(server.url + '/v1/chat/completions', { method: 'POST', headers, body })
      console.log(await answer.text())
      await server.stop()
    }
  `
  assert.equal(await run(['--input-type=module', '-e', script]), 'not json\n'.repeat(3))
})

for (const project of ['tsconfig', 'ai5', 'ai7']) {
  test(`types: ${project}`, async () => {
    const { bin } = require('typescript/package.json')
    const compiler = join(dirname(require.resolve('typescript/package.json')), bin.tsc)
    assert.equal(await run([compiler, '-p', `types/${project}.json`]), '')
  })
}
