import { spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import {
  envOf,
  type Installation,
  leftoversOf,
  processesOf,
  runCommand,
  startInstallation,
} from './installation.ts'

let folder: string
// Its name has a space, as folders of people do.
let dataDir: string
let millrace: Installation

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-up-'))
  dataDir = join(folder, 'my data')
  millrace = await startInstallation(dataDir)
})

afterAll(async () => {
  await millrace.end('SIGTERM')
  expect(await leftoversOf(dataDir)).toEqual([])
  await rm(folder, { recursive: true, force: true })
})

describe('millrace up', () => {
  it('prints a first request that streams an answer when pasted unchanged', async () => {
    const command = /^curl .*$/m.exec(millrace.output())?.[0] ?? ''
    const { stdout } = spawnSync('bash', ['-c', `${command} -s`], { encoding: 'utf8' })
    const events = stdout.split('\n\n').filter((event) => event !== '')
    expect(events.length).toBeGreaterThan(2)
    expect(events.at(-1)).toBe('data: [DONE]')
    expect(stdout).toContain('chat.completion.chunk')
    expect(millrace.output()).toContain(`http://localhost:${millrace.port}/docs`)
    expect(millrace.output()).toContain(`http://localhost:${millrace.port}/admin/queues`)
  })

  it('refuses a second copy on the same data, and does not disturb the first', async () => {
    const second = runCommand(['up'], envOf(dataDir, { PORT: '0' }))
    expect(second.status).toBe(1)
    expect(second.stderr).toContain(`Another Millrace (process ${millrace.child.pid})`)
    expect((await fetch(`http://localhost:${millrace.port}/readyz`)).status).toBe(200)
  })

  it('reports that its port is in use', async () => {
    const other = runCommand(['up'], envOf(join(folder, 'other'), { PORT: String(millrace.port) }))
    expect(other.status).toBe(1)
    expect(other.stderr).toContain(`Port ${millrace.port} is taken`)
  })

  it('starts a worker again that was killed', async () => {
    const findWorker = () =>
      processesOf(dataDir).find((line) => /^\d+ \S*node\S* .*cli\.ts worker/.test(line))
    const before = Number.parseInt(findWorker() ?? '', 10)
    process.kill(before, 'SIGKILL')
    const now = () => Number.parseInt(findWorker() ?? '', 10) || before
    await expect.poll(now).not.toBe(before)
  })

  it('restarts its Redis and its Postgres at the same addresses', async () => {
    const redis = processesOf(dataDir).find((line) => /^\d+ \S*(redis|valkey)-server/.test(line))
    const postgres = await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')
    for (const pid of [redis ?? '', postgres]) process.kill(Number.parseInt(pid, 10), 'SIGKILL')
    await expect.poll(millrace.output).toMatch(/redis ended; it starts again/)
    await expect.poll(millrace.output).toMatch(/postgres ended; it starts/)
    const readiness = async () => (await fetch(`http://localhost:${millrace.port}/readyz`)).json()
    await expect.poll(readiness, { timeout: 60_000 }).toMatchObject({ status: 'ready' })
  })
})
