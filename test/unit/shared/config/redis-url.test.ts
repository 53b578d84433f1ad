import { describe, expect, it } from 'vitest'

import { loadWorkerConfig } from '#shared/config/config.ts'
import { isLocalRedis, parseRedisUrl } from '#shared/config/redis-url.ts'

const SENTINELS = [
  { host: 'a.example', port: 26_379 },
  { host: '10.0.0.2', port: 5000 },
]

describe('REDIS_URL', () => {
  it.each(['redis://127.0.0.1:6379/1', 'rediss://user:secret@redis.example', '/run/redis.sock'])(
    'names one server: %s',
    (url) => {
      expect(parseRedisUrl(url)).toEqual({ kind: 'server', url })
    },
  )

  it('names sentinels, their master, its database and the passwords of both', () => {
    const url =
      'rediss+sentinel://me:s%40cret@a.example,10.0.0.2:5000/main/3?sentinel_username=s&sentinel_password=p%26q'
    expect(parseRedisUrl(url)).toEqual({
      kind: 'sentinel',
      sentinels: SENTINELS,
      masterName: 'main',
      db: 3,
      isTls: true,
      credentials: { username: 'me', password: 's@cret' },
      sentinelCredentials: { username: 's', password: 'p&q' },
    })
  })

  it('names the nodes of a cluster', () => {
    expect(parseRedisUrl('redis+cluster://:secret@[::1]:7000,b.example/')).toEqual({
      kind: 'cluster',
      nodes: [
        { host: '::1', port: 7000 },
        { host: 'b.example', port: 6379 },
      ],
      isTls: false,
      credentials: { password: 'secret' },
    })
  })

  it.each([
    ['localhost:6379', 'must begin with'],
    ['http://redis', 'must begin with'],
    ['redis+sentinel://a:26379', 'names no master'],
    ['redis+sentinel://a,b/main/x', 'database number'],
    ['redis+sentinel://a,,b/main', 'has "" where'],
    ['redis+sentinel://a:99999/main', 'has "a:99999" where'],
    ['redis+sentinel://a/main?password=hush', 'unknown parameter password'],
    ['redis+cluster://:hush%@a', 'write it as %25'],
    ['redis+cluster://a/1', 'no further databases'],
  ])('refuses %s and shows no password', (url, message) => {
    expect(() => parseRedisUrl(url)).toThrow(message)
    expect(() => parseRedisUrl(url)).not.toThrow('hush')
  })

  it.each([
    ['redis+sentinel://127.0.0.1:1,localhost:2/main', true],
    ['redis+sentinel://127.0.0.1:1,redis.example:2/main', false],
    ['redis+cluster://10.0.0.1', false],
    ['redis://localhost', true],
  ])('is on this machine: %s (%s)', (url, isLocal) => {
    expect(isLocalRedis(url)).toBe(isLocal)
  })

  it.each([
    ['redis+cluster://127.0.0.1', 'mine', '{mine}'],
    ['redis+cluster://127.0.0.1', '{mine}', '{mine}'],
    ['redis://127.0.0.1', 'mine', 'mine'],
  ])('makes the prefix a hash tag in a cluster: %s %s', (url, prefix, expected) => {
    const { infra } = loadWorkerConfig({ REDIS_URL: url, MILLRACE_REDIS_PREFIX: prefix })
    expect(infra.redisPrefix).toBe(expected)
  })
})
