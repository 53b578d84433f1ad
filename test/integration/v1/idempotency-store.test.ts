import { createHash } from 'node:crypto'

import { expect, onTestFinished } from 'vitest'

import { claimOf, openIdempotencyStore } from '#api/v1/idempotency-store.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { it } from '#test/support/services.ts'

const ORGANIZATION = { organizationId: 'org', scopes: null, modelIds: null }

const OLD = 'an old key of thirty-two characters'
const NEW = 'a new key of thirty-two characters!'
const digestOf = (text: string) => createHash('sha256').update(text).digest('hex')
const PROMPT = digestOf('POST\n/v1/completions\n{"prompt":"guess me"}')
const FORM = digestOf('a form that may be guessed')
const ANSWER = { status: 200, headers: {}, body: Buffer.from('{}') }

async function openStores(redisUrl: string, prefix: string) {
  const redis = await openRedis(redisUrl, 'producer', createLogger({ level: 'silent' }))
  onTestFinished(() => redis.disconnect())
  const open = (...secrets: string[]) =>
    openIdempotencyStore(redis, prefix, 100_000, openContentCipher(secrets))
  const stored = async (): Promise<string> => {
    const names = await redis.keys(`${prefix}:idempotency:*`)
    const hashes = names.filter((name) => !/:(lease|bytes)/.test(name))
    return JSON.stringify(await Promise.all(hashes.map((name) => redis.hgetall(name))))
  }
  return { open, stored }
}

it('keeps digests of prompts and forms that cannot be compared with a guess', async ({
  redisUrl,
  keyPrefix,
}) => {
  const { open, stored } = await openStores(redisUrl, keyPrefix)
  const store = open(NEW)
  const claim = claimOf(ORGANIZATION, 'key', PROMPT)
  expect(await store.begin(claim)).toMatchObject({ state: 'mine' })
  await store.finish(claim, ANSWER, FORM)
  const record = await stored()
  expect(record).toContain('fingerprint')
  expect(record).not.toContain(PROMPT)
  expect(record).not.toContain(FORM)
})

it('gives a command that is sent again after a lost connection the same answer', async ({
  redisUrl,
  keyPrefix,
}) => {
  const store = (await openStores(redisUrl, keyPrefix)).open()
  const claim = claimOf(ORGANIZATION, 'key', PROMPT)
  const first = await store.begin(claim)
  expect(first.state).toBe('mine')
  expect(await store.begin(claim)).toEqual(first)
  expect(await store.begin(claimOf(ORGANIZATION, 'key', PROMPT))).toMatchObject({
    state: 'running',
  })
})

it.for([
  [[OLD], [NEW, OLD]],
  [[], [NEW]],
])(
  'knows a request again that was stored under %j when the secrets are %j',
  async ([before, after], { redisUrl, keyPrefix }) => {
    const { open } = await openStores(redisUrl, keyPrefix)
    const first = open(...(before as string[]))
    const claim = claimOf(ORGANIZATION, 'key', PROMPT)
    await first.begin(claim)
    await first.finish(claim, ANSWER, FORM)
    const store = open(...(after as string[]))
    const found = await store.begin(claimOf(ORGANIZATION, 'key', PROMPT))
    expect(found).toMatchObject({ state: 'done', answer: { status: 200 } })
    expect(store.isForm(found.form ?? '', FORM)).toBe(true)
    expect(store.isForm(found.form ?? '', digestOf('another'))).toBe(false)
    expect(store.isForm(found.form ?? '', undefined)).toBe(false)
    const other = claimOf(ORGANIZATION, 'key', digestOf('another request'))
    expect(await store.begin(other)).toMatchObject({ state: 'other' })
  },
)

it('records a day of answers within the bytes of all, and a quarter of them for one organization', async ({
  redisUrl,
  keyPrefix,
}) => {
  const redis = await openRedis(redisUrl, 'producer', createLogger({ level: 'silent' }))
  onTestFinished(() => redis.disconnect())
  const store = openIdempotencyStore(redis, keyPrefix, 110_000)
  const answer = { ...ANSWER, body: Buffer.alloc(9000, 'x') }
  /** Whether the answer to a request of an organization is recorded. */
  const isRecorded = async (organizationId: string, key: string): Promise<boolean> => {
    const claim = () => claimOf({ ...ORGANIZATION, organizationId }, key, PROMPT)
    const first = claim()
    await store.begin(first)
    await store.finish(first, answer, undefined)
    return (await store.begin(claim())).state === 'done'
  }
  const kept: boolean[][] = []
  for (const organization of ['a', 'b', 'c', 'd', 'e', 'f']) {
    kept.push([await isRecorded(organization, '1'), await isRecorded(organization, '2')])
    expect(await isRecorded(organization, '3')).toBe(false)
  }
  expect(kept).toEqual([
    ...Array.from({ length: 4 }, () => [true, true]),
    [false, false],
    [false, false],
  ])
  expect(Number(await redis.get(`${keyPrefix}:idempotency:bytes`))).toBeLessThanOrEqual(110_000)
})

it('counts what a record takes in Redis, however short its answer is', async ({
  redisUrl,
  keyPrefix,
}) => {
  const redis = await openRedis(redisUrl, 'producer', createLogger({ level: 'silent' }))
  onTestFinished(() => redis.disconnect())
  const store = openIdempotencyStore(redis, keyPrefix, 1e6)
  const claim = claimOf(ORGANIZATION, 'short', PROMPT)
  await store.begin(claim)
  const answer = { ...ANSWER, body: Buffer.from('{}') }
  await store.finish(claim, answer, undefined)
  const used = Number(await redis.memory('USAGE', `${keyPrefix}:idempotency:${claim.id}`))
  const counted = Number(await redis.get(`${keyPrefix}:idempotency:bytes`))
  expect(used).toBeGreaterThan(0)
  expect(counted).toBeGreaterThan(used)
})
