import { readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client } from 'pg'
import { describe, expect } from 'vitest'

import { startChild } from '#launcher/embedded/child.ts'
import { findPlace } from '#launcher/embedded/postgres-place.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
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
    // What a container or a machine leaves that is switched off, once this test's process has that number.
    await writeFile(pidFile, [process.pid, ...lines.slice(1)].join('\n'), { mode: 0o600 })
    await (await findPlace(folder, '')).own(pidFile)
    const after = await startPostgres(folder, { password: 'kept' })
    try {
      expect(await folderOf(after.url)).toBe(data)
    } finally {
      await after.stop()
    }
  })
})

describe('a child process', () => {
  it('goes on when the disk of its log is full', async ({ folder }) => {
    const logFile = join(folder, 'child.log')
    // Every write to it fails as on a full disk.
    await symlink('/dev/full', logFile)
    let seen = ''
    const child = await startChild({
      ...{ command: 'sh', args: ['-c', 'while echo alive; do sleep 0.3; done'] },
      ...{ logFile, stopSignal: 'TERM', onOutput: (text) => (seen += text) },
    })
    try {
      // Long enough for the log to have been opened a second time.
      await expect.poll(() => seen.split('alive').length, { timeout: 20_000 }).toBeGreaterThan(8)
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
