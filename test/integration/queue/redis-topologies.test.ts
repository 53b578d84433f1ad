import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'

import type { Cluster } from 'ioredis'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { trustAuthorities } from '#launcher/authorities.ts'
import { reachRedis } from '#launcher/reach.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { readDepth } from '#shared/queue/depth.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { probeRedis } from '#shared/queue/redis-client.ts'
import { log } from '#test/support/queue.ts'
import { type RedisTopology, startCluster, startSentinels } from '#test/support/redis-topologies.ts'

describe('sentinels that ask for TLS and passwords', () => {
  const trusted = getCACertificates('default')
  let redis: RedisTopology

  beforeAll(async () => {
    redis = await startSentinels({ isTls: true })
  })

  afterAll(async () => {
    setDefaultCACertificates(trusted)
    await redis.close()
  })

  it('are refused until their authority is trusted', async () => {
    const reaching = openRedis(redis.url, 'producer', log, 500)
    await expect(reaching).rejects.toThrow(/master mymaster of 127\.0\.0\.1.*self-signed/)
    trustAuthorities(redis.caFile)
    const client = await openRedis(redis.url, 'producer', log)
    await client.set('a', '1')
    expect(await client.info('replication')).toContain('role:master')
    client.disconnect()
  })

  it.each([
    [
      'an unknown master',
      (url: string) => url.replace('mymaster', 'other'),
      /know no master "other"/,
    ],
    [
      'a wrong password of the sentinels',
      (url: string) => url.replace('sentinel-secret', 'x'),
      /WRONGPASS/,
    ],
    [
      'a wrong password of the master',
      (url: string) => url.replace('data-secret', 'x'),
      /WRONGPASS/,
    ],
  ])('name %s', async (_what, change, reason) => {
    trustAuthorities(redis.caFile)
    // A busy machine can take longer than one wait to get as far as the fault.
    const faultOf = () => openRedis(change(redis.url), 'producer', log, 500).then(String, String)
    await expect.poll(faultOf).toMatch(reason)
  })
})

describe('a server without TLS', () => {
  it.each([
    ['redis:', 'rediss:'],
    ['redis:', 'rediss+cluster:'],
  ])('is named where the URL has %s as %s', async (plain, encrypted) => {
    const url = inject('redisUrl')
      .replace(plain, encrypted)
      .replace(/\/\d+$/, '')
    const reason = /it does not speak TLS: write redis instead of rediss/
    await expect(openRedis(url, 'producer', log, 500)).rejects.toThrow(reason)
    await expect(probeRedis(url)).rejects.toThrow(reason)
  })

  it('reports the connection error if nothing listens', async () => {
    await expect(probeRedis('rediss://127.0.0.1:1')).rejects.toThrow(/ECONNREFUSED/)
  })
})

describe('a server in protected mode', () => {
  it('is named', async () => {
    // As Redis answers to other machines, which a test cannot be.
    const server = createServer((socket) =>
      socket.on('error', () => {}).end('-DENIED Redis is\r\n'),
    )
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    const reason = /it is in protected mode: give it a password/
    const url = `redis://127.0.0.1:${port}`
    await expect(openRedis(url, 'producer', log, 500)).rejects.toThrow(reason)
    await expect(probeRedis(url)).rejects.toThrow(reason)
    server.close()
  })
})

describe('a cluster', () => {
  let redis: RedisTopology

  beforeAll(async () => {
    redis = await startCluster()
  })

  afterAll(() => redis?.close())

  it('is reached, and refused as a single server', async () => {
    await reachRedis({ redisUrl: redis.url })
    const one = redis.url.replace('redis+cluster', 'redis').replace(/,.*/, '')
    await expect(reachRedis({ redisUrl: one })).rejects.toThrow('redis+cluster://')
  })

  it('spreads queues over its shards', async () => {
    const client = await openRedis(redis.url, 'producer', log)
    const keys = queueKeys('{spread}')
    const queues = Array.from({ length: 12 }, (_, index) => ({
      kind: 'completion' as const,
      modelId: `model-${index}`,
    }))
    const { slots } = client as unknown as Cluster & { slots: string[][] }
    const shards = new Set<string | undefined>()
    for (const [index, { kind, modelId }] of queues.entries()) {
      await client.zadd(keys.bull(kind, modelId, 'prioritized'), index, 'job')
      const slot = await client.cluster('KEYSLOT', keys.bull(kind, modelId, 'wait'))
      expect(await client.cluster('KEYSLOT', keys.tickets(kind, modelId))).toBe(slot)
      shards.add(slots[slot]?.[0])
    }
    const depths = await Promise.all(
      queues.map((queue) => readDepth({ redis: client, keys }, queue)),
    )
    client.disconnect()
    expect(shards.size).toBe(3)
    expect(depths.map(({ prioritized }) => prioritized)).toEqual(queues.map(() => 1))
  })
})
