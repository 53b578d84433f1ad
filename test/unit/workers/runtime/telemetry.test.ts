import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { expect, it } from 'vitest'

const run = promisify(execFile)

// Unsent telemetry would be kept in the user's folder, beside an id of the machine.
it('the runtime keeps nothing to report to its vendor', async () => {
  const home = await mkdtemp(join(tmpdir(), 'millrace-home-'))
  const program = `
    const { openRuntime } = await import('#workers/runtime/runtime.ts')
    await openRuntime().close()`
  try {
    // Not what the tests are run with: it would be silent in every CI.
    const env = { PATH: process.env.PATH, HOME: home, TMPDIR: home }
    await run(process.execPath, ['--input-type=module', '-e', program], { env })
    expect(await readdir(home)).toEqual([])
  } finally {
    await rm(home, { recursive: true })
  }
})
