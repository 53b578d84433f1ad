import { readFileSync } from 'node:fs'

import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { envOf, runCommand } from './installation.ts'

describe('the command line', () => {
  it.for([
    [['frobnicate'], 'there is no command "frobnicate"'],
    [['toString'], 'there is no command "toString"'],
    [['models', 'list', '--frobnicate'], '--frobnicate'],
    [['models', 'frobnicate'], 'list, verify or pull'],
    [['models', 'pull'], 'needs a repository'],
    [['models', 'pull', 'tiny-chat', '--file', 'x'], '--file means nothing for tiny-chat'],
  ] as const)('refuses %j with status 2 and one clear sentence', ([args, message], { folder }) => {
    const { status, stderr } = runCommand(args, envOf(folder))
    expect(stderr).toContain(message)
    expect(stderr).not.toContain('    at ')
    expect(status).toBe(2)
  })

  it('tells its version', ({ folder }) => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
    expect(runCommand(['--version'], envOf(folder)).stdout.trim()).toBe(version)
  })

  it('prints the example of every setting', ({ folder }) => {
    const { stdout } = runCommand(['config', '--example'], envOf(folder))
    expect(stdout).toBe(readFileSync('.env.example', 'utf8'))
  })

  it('names every wrong setting at once', ({ folder }) => {
    const { status, stderr } = runCommand(
      ['config'],
      envOf(folder, { PORT: 'eighty', AUTH_SITE_URL: 'nowhere' }),
    )
    expect(status).toBe(1)
    expect(stderr).toContain('AUTH_SITE_URL must be a URL')
    expect(stderr).toContain('PORT must be an integer')
    expect(stderr).toContain('AUTH_JWT_SECRET is required')
  })

  it('masks secrets where it shows the settings', ({ folder }) => {
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

  it('verifies the models that ship', ({ folder }) => {
    const { status, stdout, stderr } = runCommand(['models', 'verify'], envOf(folder))
    expect(stdout).toContain('tiny-chat')
    expect(status, stderr).toBe(0)
  })
})

it('makes, lists and revokes keys in a given database, and records it', async ({
  folder,
  databaseUrl,
  database,
}) => {
  const env = envOf(folder, {
    DATABASE_URL: databaseUrl,
    AUTH_SITE_URL: 'http://localhost',
    AUTH_API_EXTERNAL_URL: 'http://localhost',
    AUTH_JWT_SECRET: 'long-enough-for-the-tests',
    AUTH_SMTP_HOST: 'localhost',
    AUTH_SMTP_ADMIN_EMAIL: 'admin@example.com',
    MILLRACE_URL_SIGNING_SECRET: 'long-enough-for-the-tests',
  })
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
