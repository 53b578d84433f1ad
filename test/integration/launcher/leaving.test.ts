import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { claimPortNumber, findFreePort } from '#launcher/embedded/child.ts'

const ROOT = join(import.meta.dirname, '../../..')
// A call that keeps a thread of the pool busy for a minute, as the load of a large model does.
const BUSY = `
  import { pbkdf2 } from 'node:crypto'
  pbkdf2('a', 'b', 90_000_000, 64, 'sha512', () => {})
`
const SERVE = `import { serve } from '${ROOT}/launcher/commands/serve.ts'`
const LEAVE = `import { leaveProcess } from '${ROOT}/workers/runtime/c-library.ts'`

describe('A tier that receives SIGTERM', () => {
  it('ends, though a thread is still busy', async () => {
    const code = await end(`${BUSY}
${SERVE}
${LEAVE}
      setTimeout(() => console.log('up'), 100)
      await serve(Promise.resolve({ stop: async () => {}, leave: leaveProcess }))`)
    expect(code).toBe(0)
  })

  it('ends on a second signal, though a thread is busy and its stop hangs', async () => {
    const code = await end(
      `${BUSY}
${SERVE}
${LEAVE}
      process.on('SIGTERM', () => console.log('heard'))
      setTimeout(() => console.log('up'), 100)
      await serve(Promise.resolve({ stop: () => new Promise(() => {}), leave: leaveProcess }))`,
      2,
    )
    expect(code).toBe(130)
  })

  it('ends while it waits for something that is away, before it has started', async () => {
    const code = await end(`${SERVE}
      setTimeout(() => console.log('up'), 100)
      setInterval(() => {}, 1000)
      await serve(new Promise(() => {}))`)
    expect(code).toBe(1)
  })
})

describe('A port that a launcher chose', () => {
  it('is not chosen by another launcher until it is released', async () => {
    const port = 100_000 + process.pid
    const release = await claimPortNumber(port)
    expect(release).toBeDefined()
    // Elsewhere there are no such names, and no other process is kept away.
    if (process.platform === 'linux') expect(await claimPortNumber(port)).toBeUndefined()
    await release?.()
    const again = await claimPortNumber(port)
    expect(again).toBeDefined()
    await again?.()
  })

  it.runIf(process.platform === 'linux')('is its own when it is found free', async () => {
    expect(await claimPortNumber(await findFreePort())).toBeUndefined()
  })
})

/** Runs a program and sends it the signals to end, each when it has printed something. */
async function end(program: string, signals = 1): Promise<number | null> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  let left = signals
  child.stdout.on('data', () => {
    if (left > 0) child.kill('SIGTERM')
    left -= 1
  })
  const [code] = await ended
  return code as number | null
}
