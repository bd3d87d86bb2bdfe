// Each story, told in Node, says what is expected of it in every language.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const home = new URL('../', import.meta.url)
const files = await readdir(home, { recursive: true })
const stories = files.filter((file) => /^\w+\/expected\.txt$/.test(file)).map((file) => file.split('/')[0])

for (const story of stories) {
  test(story, async () => {
    const program = fileURLToPath(new URL(`${story}/main.mjs`, home))
    const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: 60_000 })
    assert.equal(stdout, await readFile(new URL(`${story}/expected.txt`, home), 'utf8'))
  })
}

test('there are five', () => assert.equal(stories.length, 5))
