import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject } from 'vitest'
import { parse } from 'yaml'

import { findPackaged } from '#test/support/packaged.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase, it } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

import { readAlerts } from './monitoring.ts'

const promtool = await findPackaged('promtool', { packages: ['prometheus'] })
const FOLDER = join(import.meta.dirname, '../../../deploy/monitoring')

/** The faults that promtool finds; empty when there are none. */
function findFaults(args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync(String(promtool), args, {
    cwd: FOLDER,
    input,
    encoding: 'utf8',
  })
  return status === 0 ? '' : `${stdout}${stderr}`
}

it.runIf(promtool === undefined)('needs promtool', ({ skip }) => skip('none on this machine'))

describe.skipIf(promtool === undefined)('promtool', () => {
  it('accepts the rules', () => {
    expect(findFaults(['check', 'rules', 'alerts.yml'])).toBe('')
  })

  it('confirms that the alerts fire and stay silent as their tests require', () => {
    const text = readFileSync(join(FOLDER, 'alerts.test.yml'), 'utf8')
    expect((parse(text) as { tests: unknown[] }).tests.length).toBeGreaterThan(3)
    expect(findFaults(['test', 'rules', 'alerts.test.yml'])).toBe('')
    const names = new Set(readAlerts().map(({ alert }) => alert))
    const tested = text.match(/Millrace\w+/g) ?? []
    expect(tested.filter((name) => !names.has(name))).toEqual([])
  })

  describe('reads the metrics of', () => {
    let folder: string
    let tiers: Tiers
    let database: Awaited<ReturnType<typeof createDatabase>>
    let worker: Awaited<ReturnType<Tiers['startWorker']>>

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'millrace-promtool-'))
      database = await createDatabase()
      tiers = await startTiers({
        databaseUrl: database.url,
        redisUrl: inject('redisUrl'),
        keyPrefix: freshPrefix(),
        folder,
        env: { MILLRACE_WORKER_MODELS: 'tiny-embed', MILLRACE_METRICS_COMPAT: 'vllm' },
      })
      worker = await tiers.startWorker()
    })
    afterAll(async () => {
      await tiers?.stop()
      await database?.drop()
      await rm(folder, { recursive: true, force: true })
    })

    it.for(['an API process', 'a worker'] as const)('%s', async (name) => {
      const url = name === 'a worker' ? worker.metricsUrl : tiers.metricsUrl
      const faults = findFaults(['check', 'metrics'], await (await fetch(url)).text())
      // The names of vLLM, of Node's client and of the conventions for databases are not ours.
      const own = faults.split('\n').filter((line) => line.startsWith('millrace_'))
      expect(own).toEqual([])
      expect(faults).not.toMatch(/error while linting|parse error|invalid/i)
    })
  })
})
