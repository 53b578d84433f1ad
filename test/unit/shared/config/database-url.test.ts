import { describe, expect, it } from 'vitest'

import { parseDatabaseUrl } from '#shared/config/database-url.ts'

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
