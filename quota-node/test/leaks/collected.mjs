// Garbage that is collected when it is asked for.

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc')

/** Until what nobody has any more is gone, and what went with it: one that is dropped now is told to be gone last. */
export async function collected() {
  for (let time = 0; time < 2; time++) {
    let gone = false
    const registry = new FinalizationRegistry(() => (gone = true))
    ;(() => registry.register({}, 0))()
    const end = performance.now() + 20_000
    while (!gone) {
      if (performance.now() > end) throw new Error('nothing is collected')
      gc()
      await new Promise(setImmediate)
    }
  }
}
