import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, inject } from 'vitest'

import { startRedis } from '#launcher/embedded/redis.ts'
import { it } from '#test/support/services.ts'
import { apiEnv } from '#test/support/tiers.ts'

import { envOf, runBeside } from './installation.ts'

// Side by side, because most of their time is that of a start.
describe.concurrent('a start that cannot succeed', () => {
  it.for([
    [{ PORT: 'abc' }, ['PORT must be an integer from 0 to 65535']],
    [
      { PORT: '70000', AUTH_SITE_URL: 'nonsense' },
      ['PORT must be an integer', 'AUTH_SITE_URL must be a URL'],
    ],
    [{ MILLRACE_WORKER_KINDS: 'poems' }, ['MILLRACE_WORKER_KINDS may name', 'not "poems"']],
    [{ MILLRACE_TRUSTED_PROXIES: '10.0.0.0/8,proxy' }, ['MILLRACE_TRUSTED_PROXIES', 'not "proxy"']],
    [{ REDIS_URL: 'localhost:6379' }, ['REDIS_URL must begin with redis://']],
    [{ DATABASE_URL: 'localhost' }, ['DATABASE_URL) must begin with postgres://']],
    [{ S3_ENDPOINT: 'http://127.0.0.1:1' }, ['S3_ENDPOINT needs S3_ACCESS_KEY_ID']],
    [{ MILLRACE_CATALOGUE: '/nowhere.json' }, ['catalogue cannot be read', 'MILLRACE_CATALOGUE']],
    [
      { REDIS_URL: 'redis://127.0.0.1:1', DATABASE_URL: 'postgres://a:hush@127.0.0.1:1/x' },
      ['Redis cannot be used: connect ECONNREFUSED', 'check DATABASE_URL'],
    ],
    [
      { S3_ENDPOINT: 'http://127.0.0.1:1', S3_ACCESS_KEY_ID: 'a', S3_SECRET_ACCESS_KEY: 'hush' },
      ['The object storage cannot be used', 'check S3_ENDPOINT'],
    ],
  ] as const)('ends with what is wrong: %j', async ([settings, sentences], { folder, expect }) => {
    const { status, stderr } = await runBeside(['up'], envOf(join(folder, 'data'), settings))
    for (const sentence of sentences) expect(stderr).toContain(sentence)
    expect(stderr).not.toMatch(/ {4}at |hush/)
    expect(status).toBe(1)
  })

  it.for([
    ['worker', { MILLRACE_CATALOGUE: '/nowhere.json' }, ['check MILLRACE_CATALOGUE']],
    ['worker', { AUTH_LOG_FILE: '/etc/hostname/x.log' }, ['log file cannot', 'AUTH_LOG_FILE']],
    ['worker', { AUTH_LOG_FILE: '/' }, ['log file cannot be written', 'check AUTH_LOG_FILE']],
    [
      'worker',
      { REDIS_URL: 'redis://:hush@127.0.0.1:1' },
      ['Redis at 127.0.0.1:1 did not answer', 'ECONNREFUSED', 'check REDIS_URL'],
    ],
  ] as const)(
    'ends a %s alone with what is wrong: %j',
    async ([tier, settings, sentences], { folder, expect }) => {
      const { status, stderr, stdout } = await runBeside(
        [tier],
        envOf(join(folder, 'data'), settings),
      )
      for (const sentence of sentences) expect(stderr).toContain(sentence)
      expect(stderr).not.toMatch(/ {4}at /)
      expect(stdout + stderr).not.toContain('hush')
      expect(status).toBe(1)
    },
  )

  it('names the setting of a database that does not speak TLS', async ({
    folder,
    databaseUrl,
    expect,
  }) => {
    const settings = {
      ...apiEnv(`${databaseUrl}?sslmode=verify-full`, 0),
      REDIS_URL: inject('redisUrl'),
    }
    const { status, stderr } = await runBeside(['api'], envOf(join(folder, 'data'), settings))
    expect(stderr).toContain('does not support SSL connections; check DATABASE_URL')
    expect(status).toBe(1)
  })

  it('names a folder of MILLRACE_HOME that does not exist', async ({ folder, expect }) => {
    const settings = { MILLRACE_HOME: join(folder, 'nowhere') }
    const { status, stderr } = await runBeside(['config'], envOf(join(folder, 'data'), settings))
    expect(stderr).toContain('The folder of MILLRACE_HOME cannot be entered (ENOENT')
    expect(stderr).not.toMatch(/ {4}at /)
    expect(status).toBe(1)
  })

  it('names a data directory that cannot be one', async ({ folder, expect }) => {
    const file = join(folder, 'file')
    await writeFile(file, '')
    for (const path of [file, join(file, 'below'), '/proc/nowhere']) {
      const { status, stderr } = await runBeside(['up'], envOf(path))
      expect(stderr).toContain(`The data directory ${path} cannot be used`)
      expect(status).toBe(1)
    }
  })

  it('names a Redis that refuses the password', async ({ folder, onTestFinished, expect }) => {
    const redis = await startRedis(folder, { password: 'right', onProgress: () => {} })
    onTestFinished(() => redis.stop())
    const url = redis.url.replace('right', 'hush')
    const { status, stderr } = await runBeside(
      ['up'],
      envOf(join(folder, 'data'), { REDIS_URL: url }),
    )
    expect(stderr).toContain('Redis cannot be used: WRONGPASS')
    expect(stderr).not.toContain('hush')
    expect(status).toBe(1)
  })

  it('replaces a lock that a crash has damaged', async ({ folder, expect }) => {
    const dataDir = join(folder, 'data')
    await mkdir(dataDir)
    await writeFile(join(dataDir, 'launcher.lock'), '{"pid": 1')
    const { stderr } = await runBeside(['keys', 'list'], envOf(dataDir))
    expect(stderr).toContain('There is no database')
  })
})
