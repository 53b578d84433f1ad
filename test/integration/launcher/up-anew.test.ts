import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { findFreePort } from '#launcher/embedded/child.ts'
import { scrape, sumOf } from '#test/support/metrics-text.ts'
import { it } from '#test/support/services.ts'

import {
  envOf,
  type Installation,
  leftoversOf,
  processesOf,
  runCommand,
  startInstallation,
} from './installation.ts'

// The folder's name has a space, as folders of people do.
const dataDirOf = (folder: string) => join(folder, 'my data')

describe('millrace up, started anew,', () => {
  it('serves the models that load and names the others', { timeout: 120_000 }, async ({
    folder,
  }) => {
    const source = join(import.meta.dirname, '../../../models/tiny-embed')
    const models = [
      { id: 'sound', kind: 'embedding', source, capabilities: ['embedding'] },
      { id: 'gone', kind: 'embedding', source: join(folder, 'nowhere'), capabilities: [] },
    ]
    const file = join(folder, 'catalogue.json')
    await writeFile(file, JSON.stringify({ models }))
    const env = { MILLRACE_CATALOGUE: file, MILLRACE_BOOTSTRAP_API_KEY: 'a-key-of-the-tests' }
    const millrace = await startInstallation(dataDirOf(folder), env)
    try {
      expect(millrace.output()).toContain(
        '\ngone cannot be loaded; loaded models are already served\n',
      )
      const embed = async (model: string) =>
        fetch(`http://localhost:${millrace.port}/v1/embeddings`, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            authorization: `Bearer ${env.MILLRACE_BOOTSTRAP_API_KEY}`,
          },
          body: JSON.stringify({ model, input: 'Hi' }),
        })
      expect((await embed('sound')).status).toBe(200)
      expect((await embed('gone')).status).toBe(503)
    } finally {
      await millrace.end('SIGTERM')
    }
  })

  it('leaves no process running after a signal, and starts again with its secrets and data', {
    timeout: 300_000,
  }, async ({ folder }) => {
    const dataDir = dataDirOf(folder)
    const secretsFile = join(dataDir, 'secrets.json')
    let kept: { readonly key: string; readonly secrets: string } | undefined
    for (const signal of ['SIGINT', 'SIGKILL', 'SIGTERM'] as const) {
      const millrace = await startInstallation(dataDir)
      expect(processesOf(dataDir).length).toBeGreaterThan(3)
      kept ??= { key: createKey(dataDir), secrets: await readFile(secretsFile, 'utf8') }
      expect(await readFile(secretsFile, 'utf8')).toBe(kept.secrets)
      // Readable only by their owner.
      expect((await stat(secretsFile)).mode & 0o777).toBe(0o600)
      expect((await stat(dataDir)).mode & 0o777).toBe(0o700)
      expect(await statusOf(millrace, kept.key)).toBe(200)
      expect(await statusOf(millrace, 'mr-unknown')).toBe(401)
      expect([signal, await millrace.end(signal)]).toEqual([
        signal,
        signal === 'SIGKILL' ? null : 0,
      ])
      expect(await leftoversOf(dataDir), signal).toEqual([])
    }
  })

  it('ends immediately at a second signal, with requests open', async ({ folder }) => {
    const dataDir = dataDirOf(folder)
    const metricsPort = await findFreePort()
    const millrace = await startInstallation(dataDir, {
      OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
    })
    const key = /Bearer (mr-[\w-]+)/.exec(millrace.output())?.[1] ?? ''
    const drawing = fetch(`http://localhost:${millrace.port}/v1/images/generations`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'a red circle', n: 10 }),
    }).then(
      () => 'answered',
      () => 'cut off',
    )
    const jobs = async () =>
      sumOf(await scrape(`http://localhost:${metricsPort}`), 'millrace_jobs_under_way')
    await expect.poll(jobs).toBe(1)
    const code = millrace.end('SIGINT')
    await expect.poll(millrace.output).toContain('stopping')
    millrace.child.kill('SIGINT')
    expect([await code, await drawing]).toEqual([130, 'cut off'])
    expect(processesOf(dataDir).filter((line) => line.includes('cli.ts'))).toEqual([])
    expect(await leftoversOf(dataDir)).toEqual([])
  })
})

function createKey(dataDir: string): string {
  const made = runCommand(['keys', 'create', '--name', 'kept'], envOf(dataDir))
  expect(made.stdout.trim(), made.stderr).toMatch(/^mr-[\w-]{43}$/)
  return made.stdout.trim()
}

async function statusOf({ port }: Installation, key: string): Promise<number> {
  const url = `http://localhost:${port}/v1/models`
  return (await fetch(url, { headers: { authorization: `Bearer ${key}` } })).status
}
