import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { Client } from 'pg'
import { describe, expect, vi } from 'vitest'

import { lockDataDir } from '#launcher/data-dir.ts'
import { startChild, waitUntil } from '#launcher/embedded/child.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
import { findPlace } from '#launcher/embedded/postgres-place.ts'
import { it } from '#test/support/services.ts'

describe('the embedded Postgres', () => {
  it('starts although the number of a server that crashed is another process by now', async ({
    folder,
  }) => {
    const before = await startPostgres(folder, { password: 'kept' })
    const data = await folderOf(before.url)
    const pidFile = join(data, 'postmaster.pid')
    const lines = (await readFile(pidFile, 'utf8')).split('\n')
    await before.stop()
    // The file of a container or machine that was switched off, with the process id of this test.
    await writeFile(pidFile, [process.pid, ...lines.slice(1)].join('\n'), { mode: 0o600 })
    await (await findPlace(folder, '')).own(pidFile)
    const after = await startPostgres(folder, { password: 'kept' })
    try {
      expect(await folderOf(after.url)).toBe(data)
    } finally {
      await after.stop()
    }
  })

  it('starts although the first start was killed while it set the data up', async ({ folder }) => {
    const module = join(import.meta.dirname, '../../../launcher/embedded/postgres.ts')
    const code = `(await import(${JSON.stringify(module)})).startPostgres(process.argv[1], { password: 'kept' })`
    const first = spawn(process.execPath, ['--input-type=module', '-e', code, folder])
    const data = dirname((await findPlace(folder, '')).folder)
    await expect
      .poll(
        async () =>
          (await readdir(data, { recursive: true })).some((name) => name.endsWith('PG_VERSION')),
        { interval: 10 },
      )
      .toBe(true)
    first.kill('SIGKILL')
    await once(first, 'exit')
    const postgres = await startPostgres(folder, { password: 'kept' })
    try {
      expect(await folderOf(postgres.url)).toBe(join(data, 'postgres'))
    } finally {
      await postgres.stop()
    }
  })
})

describe('the embedded Redis in Docker', () => {
  it.for([
    ['seccomp', `--user ${process.getuid?.()}:${process.getgid?.()} `],
    ['rootless', ''],
  ] as const)(
    'runs as the owner of its files where Docker is %s',
    async ([security, user], { folder }) => {
      const bin = join(folder, 'bin')
      await mkdir(bin)
      // Without a Redis on the PATH; the stand-in runs the server that the image would contain.
      const places = { PATH: process.env.PATH }
      const find = (name: string) =>
        execFileSync('sh', ['-c', `command -v ${name}`], { env: places, encoding: 'utf8' }).trim()
      for (const name of ['sh', 'cat', 'sleep']) await symlink(find(name), join(bin, name))
      const calls = join(folder, 'calls')
      const docker = `#!/bin/sh
echo "$*" >> ${calls}
case $1 in
  info) printf ' Security Options:\\n  ${security}\\n' ;;
  image) exit 1 ;;
  run) for last; do :; done; exec ${find('redis-server')} "$last" ;;
esac
`
      await writeFile(join(bin, 'docker'), docker, { mode: 0o755 })
      const module = join(import.meta.dirname, '../../../launcher/embedded/redis.ts')
      const code = `const { startRedis } = await import(${JSON.stringify(module)})
const options = { password: 'secret', onProgress: console.log }
const redis = await startRedis(process.argv[1], options)
await redis.stop()`
      const args = ['--input-type=module', '-e', code, folder]
      const output = execFileSync(process.execPath, args, { env: { PATH: bin }, encoding: 'utf8' })
      expect(output).toBe('pulling valkey/valkey:8-bookworm …\n')
      const [, , pull, run] = (await readFile(calls, 'utf8')).trim().split('\n')
      expect(pull).toBe('pull valkey/valkey:8-bookworm')
      expect(run).toMatch(`run --rm --init ${user}-v ${folder}/redis:${folder}/redis -p 127.0.0.1:`)
      expect(run).toMatch(`--entrypoint valkey-server valkey/valkey:8-bookworm ${folder}/redis/`)
    },
  )
})

describe('the lock of a data directory', () => {
  it.for([undefined, '{"pid":4194304,"startedAt":"1"}', ''])(
    'is one process alone, however many start at once, after %j',
    async (left, { folder }) => {
      for (let round = 0; round < 20; round += 1) {
        if (left !== undefined) await writeFile(join(folder, 'launcher.lock'), left)
        const outcomes = await Promise.allSettled(
          Array.from({ length: 8 }, () => lockDataDir(folder)),
        )
        const held = outcomes.flatMap((outcome) =>
          outcome.status === 'fulfilled' ? [outcome.value] : [],
        )
        expect(held).toHaveLength(1)
        await expect(lockDataDir(folder)).rejects.toThrow(`process ${process.pid}`)
        await held[0]?.()
        expect(await readdir(folder)).toEqual([])
      }
    },
  )
})

describe('a wait with a time limit', () => {
  it('lasts its whole time even if the clock is set during the wait', async ({
    onTestFinished,
  }) => {
    onTestFinished(() => void vi.useRealTimers())
    vi.useFakeTimers({ toFake: ['Date'] })
    let attempts = 0
    await waitUntil(
      async () => {
        attempts += 1
        vi.setSystemTime(Date.now() + 86_400_000)
        if (attempts < 3) throw new Error('not yet')
      },
      { timeoutMs: 60_000 },
    )
    expect(attempts).toBe(3)
  })
})

describe('a child process', () => {
  it('continues when the disk of its log is full', async ({ folder }) => {
    const logFile = join(folder, 'child.log')
    // Every write to it fails as on a full disk.
    await symlink('/dev/full', logFile)
    let seen = ''
    const child = await startChild({
      command: 'sh',
      args: ['-c', 'while echo alive; do sleep 0.3; done'],
      logFile,
      stopSignal: 'TERM',
      onOutput: (text) => (seen += text),
    })
    try {
      // Long enough for the log to have been opened a second time.
      await expect.poll(() => seen.split('alive').length).toBeGreaterThan(8)
      expect(child.isRunning()).toBe(true)
    } finally {
      await child.stop()
    }
  })
})

async function folderOf(url: string): Promise<string> {
  const client = new Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ data_directory: string }>('show data_directory')
  await client.end()
  return rows[0]?.data_directory ?? ''
}
