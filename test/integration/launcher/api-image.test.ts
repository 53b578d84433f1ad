import { spawnSync } from 'node:child_process'
import { cp, readFile, symlink } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { envOf } from './installation.ts'

const ROOT = join(import.meta.dirname, '../../..')

describe('the image of the API tier', () => {
  it('checks itself and lists models without the worker tier', async ({ folder }) => {
    const image = await readFile(join(ROOT, 'deploy/docker/api.Dockerfile'), 'utf8')
    const copied = [...image.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, names = '']) =>
      names.split(' '),
    )
    for (const name of new Set(copied)) {
      await cp(join(ROOT, name), join(folder, name), { recursive: true })
    }
    await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
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
