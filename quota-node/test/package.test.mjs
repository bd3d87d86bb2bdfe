// The package as it is installed: both kinds of modules, its types, worker threads, and that it keeps no process alive.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'

const require = createRequire(import.meta.url)
const here = dirname(fileURLToPath(import.meta.url))
const home = dirname(require.resolve('quota-node/package.json'))

/** What a worker's program, which has no file, finds the package by. */
const workerData = { required: require.resolve('quota-node'), imported: import.meta.resolve('quota-node') }

/** Runs a program of its own, which ends by itself or is ended. */
function run(program, { type = 'module', args = [] } = {}) {
  const all = [...args, `--input-type=${type}`, '--eval', program]
  const done = spawnSync(process.execPath, all, { cwd: here, encoding: 'utf8', timeout: 30_000 })
  assert.equal(done.error, undefined, `${done.error}`)
  return { code: done.status, out: done.stdout.trim(), err: done.stderr }
}

function prints(want, program, options) {
  const { code, out, err } = run(program, options)
  assert.deepEqual([out, code], [want, 0], err)
}

const FIVE_LINES = `
const gate = new Gate(Policy.fromObject({ tenants: { acme: { rpm: 60, models: ['small'] } } }))
const who = new Principal({ tenant: 'acme' })
gate.acquire(who, new Request({ model: 'small', text: 'Name three rivers.' })).then((lease) => {
  lease.sent()
  console.log(lease.settle({ prompt_tokens: 14, completion_tokens: 31 }).charged.tokens)
})
`

const STAGE = `
import { FixedPool, Gate, Policy, Principal, Request, Usage } from 'quota-node'
const policy = Policy.fromObject({
  models: { m: { pool: 'p' } },
  tenants: { acme: { models: ['m'], tpm: { hard: 100, alert_percent: 50 } } },
})
const gate = new Gate(policy, { pools: { p: new FixedPool({ replicas: 1, maxRunning: 1 }) }, journal: { push() {} } })
const who = new Principal({ tenant: 'acme' })
const request = new Request({ model: 'm', inputTokens: 1, maxOutputTokens: 1 })
`

test('it is loaded from where it was installed', () => {
  assert.ok(home.endsWith(join('node_modules', 'quota-node')), home)
  const { version, license } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))
  assert.deepEqual([version, license], ['0.1.0', 'MIT OR Apache-2.0'])
  for (const file of ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md']) assert.ok(existsSync(join(home, file)), file)
})

test('the five lines, for both kinds of modules', () => {
  prints('45', `import { Gate, Policy, Principal, Request } from 'quota-node'\n${FIVE_LINES}`)
  prints('45', `const { Gate, Policy, Principal, Request } = require('quota-node')\n${FIVE_LINES}`, { type: 'commonjs' })
})

test('both kinds of modules have the same', async () => {
  for (const name of ['quota-node', 'quota-node/testing']) {
    const [required, imported] = [require(name), await import(name)]
    const { default: whole, 'module.exports': _, ...named } = imported
    assert.deepEqual(Object.keys(named).sort(), Object.keys(required).sort())
    for (const key of Object.keys(required)) assert.equal(named[key], required[key], key)
  }
})

test('the types say what is there, and refuse what is not', () => {
  const tsc = process.env.QUOTA_TSC
  assert.ok(tsc, 'QUOTA_TSC names the compiler')
  const types = join(dirname(dirname(dirname(tsc))), '@types')
  const args = [tsc, '-p', join(here, 'types'), '--typeRoots', types]
  const done = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 120_000 })
  assert.equal(done.status, 0, done.stdout + done.stderr)
})

test('copies of the package in one thread, which share the addon, never take leases for each other\'s', () => {
  const program = `
const { sep } = require('node:path')
// As the registry of a test runner, which leaves out addons.
const load = () => {
  const own = (file) => file.startsWith(require.resolve('quota-node/package.json').replace('package.json', 'lib' + sep))
  for (const file of Object.keys(require.cache)) if (own(file)) delete require.cache[file]
  return require('quota-node')
}
const admitted = ({ Gate, Policy, Principal, Request }, tenant) => {
  const gate = new Gate(Policy.fromObject({ tenants: { [tenant]: { rpm: 60, models: ['m'] } } }))
  return gate.admit(new Principal({ tenant }), new Request({ model: 'm', inputTokens: 1 })).lease
}
const first = load()
const one = admitted(first, 'acme')
const second = load()
const other = admitted(second, 'blue')
const next = admitted(first, 'cedar')
const tenants = [one, other, next].map((lease) => lease.principal.tenant)
one.cancel()
console.log(first !== second, tenants.join(), one.isOpen, other.isOpen, next.isOpen)`
  prints('true acme,blue,cedar false true true', program, { type: 'commonjs' })
})

test('an error at one lost lease leaves none of the others held', () => {
  const native = JSON.stringify(join(home, 'lib', 'native.cjs'))
  const program = `
const { Gate, Policy, Principal, Request } = require('quota-node')
const gate = new Gate(Policy.fromYaml('tenants: {acme: {rpm: 60, models: [m]}}'))
const lease = gate.admit(new Principal({ tenant: 'acme' }), new Request({ model: 'm', inputTokens: 1 })).lease
const told = (act) => { try { return act() } catch ({ name, message }) { return name + ': ' + message } }
console.log(lease.isOpen)
// The first lease of a process has the number 0; there is no other.
console.log(told(() => require(${native})._leasesLost(Uint32Array.of(7, 0), 2)))
console.log(told(() => lease.isOpen))`
  const lost = 'TypeError: there is no such lease'
  prints(`true\n${lost}\n${lost}`, program, { type: 'commonjs' })
})

test('nothing of it keeps a process alive that is done', () => {
  prints('end', `${STAGE}
gate.keeper({ intervalMs: 10 })
gate.onAlert(() => {})
gate.admit(who, request)
gate.admit(who, request)
process.on('exit', () => console.log('end'))`)
})

test('a wait keeps the process alive, and is ended by a signal', () => {
  prints('TimeoutError', `${STAGE}
const lease = await gate.acquire(who, request)
await gate.acquire(who, request, { signal: AbortSignal.timeout(50) }).catch((error) => console.log(error.name))`)
})

test('a promise that nobody awaits is a rejection that Node tells of, one that is awaited is none', () => {
  prints('caught AbortError', `${STAGE}
process.on('unhandledRejection', (error) => console.log('unhandled', error.name))
const lease = await gate.acquire(who, request)
const controller = new AbortController()
const wait = gate.acquire(who, request, { signal: controller.signal })
wait.catch((error) => console.log('caught', error.name))
controller.abort()
await new Promise((resolve) => setTimeout(resolve, 20))`)
})

test('processes end in the middle of everything', () => {
  prints('', `${STAGE}
gate.keeper({ intervalMs: 1 })
const lease = await gate.acquire(who, request)
gate.acquire(who, request)
gate.run(who, request, () => {})
setTimeout(() => process.exit(0), 20)`)
})

test('each worker thread has gates of its own', async () => {
  const program = `
const { parentPort, workerData } = require('node:worker_threads')
import(workerData.imported).then(async ({ FixedPool, Gate, Policy, Principal, Request, QuotaError }) => {
  const policy = Policy.fromYaml('{models: {m: {pool: p}}, tenants: {acme: {rpm: 60, models: [m]}}}')
  const gate = new Gate(policy, { pools: { p: new FixedPool({ replicas: 1, maxRunning: 1 }) }, journal: { push() {} } })
  const [who, request] = [new Principal({ tenant: 'acme' }), new Request({ model: 'm', inputTokens: 1 })]
  gate.keeper({ intervalMs: 1 })
  const lease = await gate.acquire(who, request)
  const wait = gate.acquire(who, request)
  lease.settle({ prompt_tokens: 1, completion_tokens: 1 })
  ;(await wait).cancel()
  const refused = await gate.acquire(who, new Request({ model: 'x' })).catch((error) => error instanceof QuotaError)
  gate.acquire(who, request)
  gate.acquire(who, request)
  parentPort.postMessage([gate.balances(who)[0].used, refused])
})`
  const workers = Array.from({ length: 4 }, () => new Worker(program, { eval: true, workerData }))
  const answers = workers.map(
    (worker) =>
      new Promise((resolve, reject) => {
        worker.once('message', resolve)
        worker.once('error', reject)
      }),
  )
  for (const answer of await Promise.all(answers)) assert.deepEqual(answer, [2, true])
  // In the middle of what waits there.
  for (const worker of workers) await worker.terminate()
})

test('what a worker throws away on its way out is no harm', async () => {
  const program = `
const { Gate, Policy, Principal, Request } = require(require('node:worker_threads').workerData.required)
const gate = new Gate(Policy.fromYaml('tenants: {acme: {rpm: 1000000, models: [m]}}'), { journal: { push() {} } })
const [who, request] = [new Principal({ tenant: 'acme' }), new Request({ model: 'm', inputTokens: 1 })]
globalThis.kept = Array.from({ length: 1000 }, () => gate.admit(who, request).lease)`
  for (let time = 0; time < 3; time++) {
    const worker = new Worker(program, { eval: true, workerData })
    const code = await new Promise((resolve, reject) => worker.once('exit', resolve).once('error', reject))
    assert.equal(code, 0)
  }
})
