import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

const BOOTSTRAP = join(import.meta.dirname, '../../../deploy/bootstrap.mjs')

// An `npm` that only writes down that it was called; the real one takes half a minute.
const NPM = `#!/bin/sh
echo "$@" >> npm-calls
mkdir busy || touch two-at-once
sleep 1
rmdir busy
mkdir -p node_modules
exit \${NPM_STATUS:-0}
`

/** A small checkout of its own, in a path with spaces. */
async function makeCheckout(folder: string) {
  const root = join(folder, 'my checkout')
  const bin = join(folder, 'bin')
  for (const path of [root, bin, join(root, 'deploy')]) await mkdir(path, { recursive: true })
  await copyFile(BOOTSTRAP, join(root, 'deploy/bootstrap.mjs'))
  await writeFile(join(root, 'package-lock.json'), '{}')
  await writeFile(join(root, 'target.mjs'), 'process.exit(Number(process.argv[2] ?? 0))')
  await writeFile(
    join(root, 'waiting.mjs'),
    "process.on('SIGTERM', () => process.exit(7)); console.log('waiting'); setInterval(() => {}, 1000)",
  )
  await writeFile(join(bin, 'npm'), NPM)
  await chmod(join(bin, 'npm'), 0o755)
  const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` }
  const args = (...rest: string[]) => [join(root, 'deploy/bootstrap.mjs'), ...rest]
  return {
    root,
    env,
    args,
    run: (rest: string[], more = {}) =>
      spawnSync(process.execPath, args(...rest), {
        cwd: '/',
        env: { ...env, ...more },
        encoding: 'utf8',
        timeout: 60_000,
      }),
    calls: async () => {
      const text = await readFile(join(root, 'npm-calls'), 'utf8').catch(() => '')
      return text.trim() === '' ? [] : text.trim().split('\n')
    },
  }
}

describe('the first step of npm start and npm test', () => {
  it('installs when the lockfile changed, once, and passes the exit code on', async ({
    folder,
  }) => {
    const checkout = await makeCheckout(folder)
    expect(checkout.run(['target.mjs', '3']).status).toBe(3)
    expect(checkout.run(['target.mjs']).status).toBe(0)
    expect(await checkout.calls()).toEqual(['ci --ignore-scripts --loglevel=error --omit=dev'])
    await writeFile(join(checkout.root, 'package-lock.json'), '{ }')
    checkout.run(['target.mjs'])
    expect(await checkout.calls()).toHaveLength(2)
  })

  it('installs once when two start at the same time', async ({ folder }) => {
    const { args, env, calls } = await makeCheckout(folder)
    const children = [1, 2].map(() => spawn(process.execPath, args('target.mjs'), { env }))
    const codes = await Promise.all(children.map(async (child) => (await once(child, 'exit'))[0]))
    expect(codes).toEqual([0, 0])
    expect(await calls()).toHaveLength(1)
  })

  it('tries again after an installation that failed or was broken off', async ({ folder }) => {
    const { root, run, calls } = await makeCheckout(folder)
    const failed = run(['target.mjs'], { NPM_STATUS: '1' })
    expect(failed.status).toBe(1)
    expect(failed.stderr).toContain('npm ci failed')
    // A killed start leaves its lock, with the id of a process that no longer exists.
    await mkdir(join(root, '.install.lock'))
    await writeFile(join(root, '.install.lock/pid'), '4194304')
    expect(run(['target.mjs']).status).toBe(0)
    expect(await calls()).toHaveLength(2)
    expect(existsSync(join(root, '.install.lock'))).toBe(false)
    const lock = await readFile(join(root, 'package-lock.json'))
    expect(await readFile(join(root, 'node_modules/.installed'), 'utf8')).toBe(
      createHash('sha256').update(lock).digest('hex'),
    )
  })

  it('waits for the npm of a start that was killed, and installs again', async ({ folder }) => {
    const { root, args, env, run, calls } = await makeCheckout(folder)
    const killed = spawn(process.execPath, args('target.mjs'), { env })
    await expect.poll(calls).toHaveLength(1)
    killed.kill('SIGKILL')
    await once(killed, 'exit')
    expect(run(['target.mjs']).status).toBe(0)
    expect(await calls()).toHaveLength(2)
    expect(existsSync(join(root, 'two-at-once'))).toBe(false)
  })

  it('passes signals on to its child', async ({ folder }) => {
    const { args, env } = await makeCheckout(folder)
    const child = spawn(process.execPath, args('waiting.mjs'), { env })
    await once(child.stdout, 'data')
    child.kill('SIGTERM')
    expect(await once(child, 'exit')).toEqual([7, null])
  })
})
