import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cp, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { findFreePort } from '#launcher/embedded/child.ts'
import { it } from '#test/support/services.ts'

import { envOf, runCommand } from './installation.ts'

describe('the command line', () => {
  it.for([
    [['frobnicate'], 'there is no command "frobnicate"'],
    [['toString'], 'there is no command "toString"'],
    [['models', 'list', '--frobnicate'], '--frobnicate'],
    [['models', 'frobnicate'], 'list, verify, pull, convert or export'],
    [['models', 'pull'], 'needs a repository'],
    [['models', 'pull', 'tiny-chat', '--file', 'x'], '--file means nothing for tiny-chat'],
    [['models', 'convert', 'a/b', '--weights', 'int3'], 'expected one of fp32, fp16, int8, int4'],
    [['models', 'pull', 'nope'], '"nope" is neither a model of models.json nor a repository'],
    [['models', 'pull', 'owner/name@'], '"owner/name@" is neither'],
    [['help', 'frobnicate'], 'there is no command "frobnicate"'],
  ] as const)('refuses %j with status 2 and one clear sentence', ([args, message], { folder }) => {
    const { status, stderr } = runCommand(args, envOf(folder))
    expect(stderr).toContain(message)
    expect(stderr).not.toContain('    at ')
    expect(status).toBe(2)
  })

  it('prints its version', ({ folder }) => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
    expect(runCommand(['--version'], envOf(folder)).stdout.trim()).toBe(version)
  })

  it('prints the example of every setting', ({ folder }) => {
    const { stdout } = runCommand(['config', '--example'], envOf(folder))
    expect(stdout).toBe(readFileSync('.env.example', 'utf8'))
  })

  it('names all wrong settings together', ({ folder }) => {
    const { status, stderr } = runCommand(
      ['config'],
      envOf(folder, { PORT: 'eighty', AUTH_SITE_URL: 'nowhere' }),
    )
    expect(status).toBe(1)
    expect(stderr).toContain('AUTH_SITE_URL must be a URL')
    expect(stderr).toContain('PORT must be an integer')
    expect(stderr).toContain('AUTH_JWT_SECRET is required')
  })

  it('masks secrets in the printed settings', ({ folder }) => {
    const secret = 'a-secret-of-many-characters'
    const { stdout } = runCommand(
      ['config'],
      envOf(folder, {
        AUTH_JWT_SECRET: secret,
        REDIS_URL: `redis://me:${secret}@redis:6379/1`,
        HF_ENDPOINT: `https://me:${secret}@mirror/hf`,
      }),
    )
    expect(stdout).toContain('AUTH_JWT_SECRET=********')
    expect(stdout).toContain('REDIS_URL=redis://me:********@redis:6379/1')
    expect(stdout).not.toContain(secret)
  })

  it('says how to get a database when there is none', ({ folder }) => {
    const { status, stderr } = runCommand(['keys', 'list'], envOf(folder))
    expect(status).toBe(1)
    expect(stderr).toContain('There is no database')
    expect(stderr).not.toContain('    at ')
  })

  it('checks the needs of a start before anything runs', async ({ folder }) => {
    const env = envOf(folder, { PORT: String(await findFreePort()) })
    const { status, stdout, stderr } = runCommand(['doctor'], env)
    expect(stdout).toContain('-  Redis: none is set; `npm start` starts its own')
    expect(stdout).toContain('-  Postgres: none is set; `npm start` starts its own')
    expect(stdout).toMatch(/✓ {2}Models: \d+ of \d+ are here/)
    expect(stdout).toContain('✓  ONNX Runtime')
    expect(stdout + stderr).not.toContain('    at ')
    const wrong = runCommand(['doctor'], envOf(folder, { PORT: 'eighty' }))
    expect([wrong.status, wrong.stderr]).toEqual([1, expect.stringContaining('PORT must be')])
    const away = runCommand(['doctor'], envOf(folder, { REDIS_URL: 'redis://127.0.0.1:1' }))
    expect(away.stdout).toContain('✗  Redis: Redis cannot be used')
    expect(away.status).toBe(1)
    expect(stdout).not.toContain('✗')
    expect(status).toBe(0)
  })

  it('ends in silence when its output is closed', ({ folder }) => {
    const line = `set -o pipefail; "$0" "$1" config --example | true`
    const cli = join(import.meta.dirname, '../../../launcher/cli.ts')
    const { status, stderr } = spawnSync('bash', ['-c', line, process.execPath, cli], {
      env: envOf(folder),
      encoding: 'utf8',
    })
    expect(stderr).toBe('')
    // It may have been done before the pipe broke.
    expect([0, 141]).toContain(status)
  })

  it('verifies the models that ship', ({ folder }) => {
    const { status, stdout, stderr } = runCommand(['models', 'verify'], envOf(folder))
    expect(stdout).toContain('tiny-chat')
    expect(status, stderr).toBe(0)
  })

  it.for([
    ['shorter', (path: string) => truncate(path, 100), 'bytes'],
    ['empty', (path: string) => truncate(path, 0), 'bytes'],
    ['changed', (path: string) => writeFile(path, '!', { flag: 'r+' }), 'SHA-256'],
    ['missing', (path: string) => rm(path), 'tokenizer.json'],
  ] as const)('finds a model file that is %s', async ([, damage, reason], { folder }) => {
    const source = join(folder, 'model')
    await cp('models/tiny-rerank', source, { recursive: true })
    const catalogue = join(folder, 'models.json')
    const models = [{ id: 'mine', kind: 'embedding', source, capabilities: ['rerank'] }]
    await writeFile(catalogue, JSON.stringify({ models }))
    const env = envOf(folder, { MILLRACE_CATALOGUE: catalogue })
    expect(runCommand(['models', 'verify'], env).status).toBe(0)
    await damage(join(source, 'tokenizer.json'))
    const { status, stdout, stderr } = runCommand(['models', 'verify'], env)
    expect(stdout).toContain(reason)
    expect([status, stderr]).toEqual([1, expect.stringContaining('1 model(s) are damaged')])
    expect(runCommand(['models', 'pull', 'mine'], env).status).toBe(1)
  })
})

const keysEnv = (folder: string, databaseUrl: string) =>
  envOf(folder, {
    DATABASE_URL: databaseUrl,
    AUTH_SITE_URL: 'http://localhost',
    AUTH_API_EXTERNAL_URL: 'http://localhost',
    AUTH_JWT_SECRET: 'long-enough-for-the-tests',
    AUTH_SMTP_HOST: 'localhost',
    AUTH_SMTP_ADMIN_EMAIL: 'admin@example.com',
    MILLRACE_URL_SIGNING_SECRET: 'long-enough-for-the-tests',
  })

it('manages the keys of any organization that is named', async ({
  folder,
  databaseUrl,
  database,
}) => {
  const env = keysEnv(folder, databaseUrl)
  await database.pool.query("insert into organizations (id, name) values ('org-a', 'A')")
  const there = ['--organization', 'org-a']
  expect(runCommand(['keys', 'create', '--name', 'theirs', ...there], env).status).toBe(0)
  expect(runCommand(['keys', 'list', '--organization', 'org-b'], env).stdout).toBe('')
  const listed = runCommand(['keys', 'list', ...there], env).stdout
  expect(listed).toContain('theirs')
  const id = /key_\S+/.exec(listed)?.[0] ?? ''
  expect(runCommand(['keys', 'revoke', id, '--organization', 'org-b'], env).status).toBe(2)
  expect(runCommand(['keys', 'revoke', id, ...there], env).stdout).toContain('is revoked')
  const nowhere = runCommand(['keys', 'create', '--organization', 'org-b'], env)
  expect(nowhere.status).toBe(2)
  expect(nowhere.stderr).toContain('No such organization: org-b')
})

it('makes, lists and revokes keys in a given database, and records it', async ({
  folder,
  databaseUrl,
  database,
}) => {
  const env = keysEnv(folder, databaseUrl)
  const made = runCommand(['keys', 'create', '--name', 'mine'], env)
  expect(made.stdout.trim(), made.stderr).toMatch(/^mr-[\w-]{43}$/)
  const listed = runCommand(['keys', 'list'], env).stdout
  expect(listed).toContain('mine')
  expect(listed).not.toContain(made.stdout.trim())
  const id = /key_\S+/.exec(listed)?.[0] ?? ''
  expect(runCommand(['keys', 'revoke', id], env).stdout).toContain('is revoked')
  expect(runCommand(['keys', 'revoke', id], env).status).toBe(2)
  expect(runCommand(['keys', 'list'], env).stdout).not.toContain('mine')
  const refused = runCommand(['keys', 'create', '--scopes', 'chat,everything'], env)
  expect([refused.status, refused.stdout]).toEqual([2, ''])
  expect(refused.stderr).toContain('there is no')
  const { rows } = await database.pool.query('select activity from activities order by published')
  expect(rows.map(({ activity }) => activity)).toMatchObject([
    {
      event: 'key.created',
      actor: 'service:command-line',
      object: { id: `key:${id}`, name: 'mine' },
    },
    { event: 'key.revoked', actor: 'service:command-line', object: { id: `key:${id}` } },
  ])
  expect(JSON.stringify(rows)).not.toContain(made.stdout.trim())
})
