// Nothing is left behind: whatever a turn takes, of V8's objects and of the addon's memory, is free again after it.
//
// Each path runs in a process of its own, with an addon that is built to count what it allocates. Stretches of turns are run until two
// in a row leave nothing: what is made once, or kept for later, grows less and less, and a leak is in all of them.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { paths } from './leaks/paths.mjs'

async function leftBy(path) {
  const counted = process.env.QUOTA_COUNTED
  assert.ok(counted, 'QUOTA_COUNTED names the folder of the paths with the addon that counts')
  const child = spawn(process.execPath, [join(counted, 'paths.mjs'), path], { timeout: 120_000 })
  let [out, err] = ['', '']
  child.stdout.on('data', (text) => (out += text))
  child.stderr.on('data', (text) => (err += text))
  const code = await new Promise((resolve) => child.once('close', resolve))
  assert.equal(code, 0, err)
  return JSON.parse(out)
}

const { 'lost objects': _, 'lost blocks': __, ...flat } = paths

describe('nothing is left of', { concurrency: 2 }, () => {
  for (const path of Object.keys(flat)) {
    test(path, async () => assert.deepEqual(await leftBy(path), []))
  }
})

test('what is lost in each turn is found', async () => {
  assert.notDeepEqual(await leftBy('lost objects'), [])
  const stretches = await leftBy('lost blocks')
  assert.ok(stretches.length > 0 && stretches.every(({ blocks, bytes }) => blocks > 0 && bytes > 0))
})
