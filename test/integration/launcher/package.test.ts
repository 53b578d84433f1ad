import { execFileSync, spawnSync } from 'node:child_process'
import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'
import { parse } from 'yaml'

import { it } from '#test/support/services.ts'

const ROOT = join(import.meta.dirname, '../../..')

// In place of a download: the packages of this checkout.
const NPM = `#!/bin/sh
echo "$@" >> "$NPM_CALLS"
ln -s ${JSON.stringify(join(ROOT, 'node_modules'))} node_modules
`

/** The unpacked npm package and an empty folder in which its command is called. */
async function unpackPackage(folder: string) {
  const tarball = execFileSync('node', [join(ROOT, 'deploy/package.mjs'), folder], {
    encoding: 'utf8',
  }).trim()
  const installed = join(folder, 'node_modules/millrace')
  const [bin, home] = [join(folder, 'bin'), join(folder, 'home')]
  for (const path of [installed, bin, home]) await mkdir(path, { recursive: true })
  execFileSync('tar', ['xzf', tarball, '--strip-components=1', '-C', installed])
  await writeFile(join(bin, 'npm'), NPM)
  await chmod(join(bin, 'npm'), 0o755)
  const calls = join(folder, 'npm-calls')
  const env = {
    PATH: `${bin}:${process.env.PATH}`,
    HOME: home,
    XDG_CACHE_HOME: join(folder, 'cache'),
    NPM_CALLS: calls,
  }
  return {
    installed,
    home,
    calls: async () => (await readFile(calls, 'utf8')).trim().split('\n'),
    run: (...args: string[]) =>
      spawnSync('node', [join(installed, 'millrace.mjs'), ...args], {
        cwd: home,
        env,
        encoding: 'utf8',
        timeout: 60_000,
      }),
  }
}

describe('the npm package', () => {
  it('installs by its lock file once, and works in the folder of its call', async ({ folder }) => {
    const { run, calls, home, installed } = await unpackPackage(folder)
    const manifest = JSON.parse(await readFile(join(installed, 'package.json'), 'utf8'))
    expect(manifest.dependencies).toBeUndefined()
    expect(run('models', 'verify').stdout).toMatch(/tiny-chat +as it should be/)
    await writeFile(
      join(home, 'models.json'),
      '{"models":[{"id":"mine","kind":"completion","source":"models/tiny-chat"}]}',
    )
    await writeFile(join(home, '.env'), 'MILLRACE_DATA_DIR=somewhere')
    expect(run('models', 'verify').stdout).toBe(`${'mine'.padEnd(20)} as it should be\n`)
    expect(run('config').stdout).toContain('MILLRACE_DATA_DIR=somewhere\n')
    expect(await calls()).toEqual(['ci --ignore-scripts --loglevel=error --omit=dev'])
    await writeFile(join(home, 'docker-compose.yml'), 'mine')
    const refused = run('init', 'compose')
    expect([refused.status, refused.stderr]).toEqual([
      1,
      expect.stringContaining('docker-compose.yml exists: move it away first'),
    ])
    expect(await readFile(join(home, 'docker-compose.yml'), 'utf8')).toBe('mine')
  })

  it('writes systemd units if their users may read the project', async ({ folder }) => {
    const { run, home } = await unpackPackage(folder)
    await chmod(folder, 0o700)
    const refused = run('init', 'systemd')
    expect([refused.status, refused.stderr]).toEqual([
      1,
      expect.stringContaining(`enter ${folder}.`),
    ])
    expect(await readdir(home)).toEqual([])
    await chmod(folder, 0o755)
    expect(run('init', 'systemd').status).toBe(0)
    expect(await readdir(home)).toEqual(
      expect.arrayContaining(['millrace-api.service', 'millrace-worker.service', 'millrace.env']),
    )
    expect((await stat(join(home, 'millrace.env'))).mode & 0o777).toBe(0o600)
  })

  it('writes a compose file that names images and does not build them', async ({ folder }) => {
    const { run, home } = await unpackPackage(folder)
    const written = run('init', 'compose')
    expect([written.status, written.stdout]).toEqual([
      0,
      expect.stringContaining('MILLRACE_IMAGE='),
    ])
    const { services } = parse(await readFile(join(home, 'docker-compose.yml'), 'utf8'))
    for (const name of ['api', 'worker', 'worker-gpu']) {
      expect(services[name].build).toBeUndefined()
      expect(services[name].image).toMatch(/^\$\{MILLRACE_IMAGE:-millrace\}-[\w-]+:.*\d+\.\d+\.\d+/)
    }
    expect(await readFile(join(home, '.env'), 'utf8')).toMatch(/^AUTH_JWT_SECRET=[0-9a-f]{64}$/m)
    expect(await readdir(join(home, 'deploy/monitoring'))).toContain('alerts.yml')
  })
})
