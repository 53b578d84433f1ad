import { describe, expect, it } from 'vitest'

import { parseDatabaseUrl } from '#shared/config/database-url.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { readDatabaseConfig } from '#shared/config/infra.ts'

describe('DATABASE_URL', () => {
  it.each([
    ['postgres://a:5432/db', ['postgres://a:5432/db'], false],
    ['socket:/run/postgresql?db=x', ['socket:/run/postgresql?db=x'], false],
    [
      'postgres://u:p%40@a:1,b/db?sslmode=require',
      ['postgres://u:p%40@a:1/db?sslmode=require', 'postgres://u:p%40@b/db?sslmode=require'],
      true,
    ],
    [
      'postgresql://u@a,[::1]:2/db?target_session_attrs=any',
      ['postgresql://u@a/db', 'postgresql://u@[::1]:2/db'],
      false,
    ],
    ['postgres://a/db?target_session_attrs=primary', ['postgres://a/db'], true],
  ])('names the servers of %s', (url, urls, mustWrite) => {
    expect(parseDatabaseUrl(url)).toEqual({ urls, mustWrite })
  })

  it.each([
    ['postgres://u:hush@a,b/db?target_session_attrs=standby', 'target_session_attrs=standby'],
    ['postgres://u:hush@a,,b/db', 'has "" where'],
  ])('refuses %s', (url, message) => {
    expect(() => parseDatabaseUrl(url)).toThrow(message)
    expect(() => parseDatabaseUrl(url)).not.toThrow('hush')
  })
})

describe('DATABASE_REPLICA_URL', () => {
  const read = (given: Record<string, string>) => {
    const env = new EnvReader({
      AUTH_DB_DRIVER: 'postgres',
      DATABASE_URL: 'postgres://a/db',
      ...given,
    })
    return { config: readDatabaseConfig(env), problems: env.problems }
  }

  it('is one server, at most 10 seconds behind by default', () => {
    const { config, problems } = read({ DATABASE_REPLICA_URL: 'postgres://b/db' })
    expect(problems).toEqual([])
    expect(config).toMatchObject({ replicaUrl: 'postgres://b/db', replicaLagSecondsMax: 10 })
    expect(read({}).config.replicaUrl).toBe('')
  })

  it.each([
    [{ DATABASE_REPLICA_URL: 'mysql://u:hush@b/db' }, 'must begin with postgres://'],
    [{ DATABASE_REPLICA_URL: 'postgres://u:hush@b,c/db' }, 'must name one server'],
    [{ DATABASE_REPLICA_URL: 'postgres://u:hush@b,/db' }, 'has "" where'],
    [{ MILLRACE_REPLICA_LAG: '1s' }, 'must be at least 2 seconds'],
  ])('refuses %j', (given, message) => {
    const { problems } = read(given)
    expect(problems).toEqual([expect.stringContaining(message)])
    expect(problems.join()).not.toContain('hush')
  })
})
