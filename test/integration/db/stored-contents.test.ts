import { describe, expect } from 'vitest'

import { AnswerStore } from '#api/stored/answer-store.ts'
import { ConversationStore } from '#api/stored/conversation-store.ts'
import type { Database } from '#shared/db/client.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { it } from '#test/support/services.ts'

const ORGANIZATION = 'org-one'
const READER = { organizationId: ORGANIZATION, reservesMemory: true } as const
// Compressed it takes a few kilobytes: the rows say nothing of what they hold.
const LARGE = 'a'.repeat(3 * 1024 * 1024)
const NUMBER = 5
const PAGE = { limit: 100, isAscending: true }

async function openStores({ db, pool }: Database) {
  await pool.query("insert into organizations (id, name) values ($1, 'x')", [ORGANIZATION])
  const cipher = openContentCipher(['a key of the tests'])
  const options = { db, tables: jobTables(''), cipher, retentionDays: 1 }
  return { answers: new AnswerStore(options), conversations: new ConversationStore(options) }
}

describe('stored contents of more bytes than one request may read', () => {
  it('are listed in shorter pages and not continued: items of a conversation', async ({
    database,
  }) => {
    const { conversations } = await openStores(database)
    const id = 'conv_large'
    const items = Array.from({ length: NUMBER }, (_, at) => ({ id: `msg_${at}`, text: LARGE }))
    const head = { id, organizationId: ORGANIZATION, userId: null, metadata: null }
    await conversations.create({ ...head, createdAt: new Date() }, items)
    const read: string[] = []
    for (let hasMore = true; hasMore; ) {
      const after = read.at(-1)
      const page = await conversations.items(READER, id, { ...PAGE, ...(after && { after }) })
      expect(page.items.length).toBeLessThanOrEqual(2)
      read.push(...page.items.map((item) => item.id))
      hasMore = page.hasMore
    }
    expect(read).toEqual(items.map((item) => item.id))
  })

  it('are listed in shorter pages and not continued: answers', async ({ database }) => {
    const { answers } = await openStores(database)
    const ids = Array.from({ length: NUMBER }, (_, at) => `resp_${at}`)
    for (const [at, id] of ids.entries()) {
      await answers.add({
        id,
        organizationId: ORGANIZATION,
        userId: null,
        object: 'response',
        model: 'x',
        previousId: ids[at - 1] ?? null,
        conversationId: null,
        jobId: null,
        metadata: null,
        input: [{ id: `msg_${at}`, text: LARGE }],
        answer: { id },
        createdAtMs: at,
      })
    }
    const page = await answers.list(READER, { ...PAGE, object: 'response' })
    expect([page.answers.map(({ row }) => row.id), page.hasMore]).toEqual([ids.slice(0, 2), true])
    const rest = { ...PAGE, object: 'response', after: ids[2] ?? '' } as const
    expect((await answers.list(READER, rest)).hasMore).toBe(false)
    expect((await answers.chain(READER, ids[1] ?? ''))?.contents.length).toBe(2)
    await expect(answers.chain(READER, ids[4] ?? '')).rejects.toMatchObject({
      status: 400,
      param: 'previous_response_id',
      code: 'context_length_exceeded',
    })
  })

  it('cannot be referred to, least of all by another organization', async ({ database }) => {
    const { answers } = await openStores(database)
    const ids = Array.from({ length: NUMBER }, (_, at) => `resp_${at}`)
    for (const id of ids) {
      await answers.add({
        id,
        organizationId: ORGANIZATION,
        userId: null,
        object: 'response',
        model: 'x',
        previousId: null,
        conversationId: null,
        jobId: null,
        metadata: null,
        input: [],
        answer: { id, output: [{ id: `msg_${id}`, text: LARGE }] },
        createdAtMs: 0,
      })
    }
    const [first = ''] = ids
    const { contents } = await answers.outputs(READER, [first])
    expect(contents).toMatchObject([{ id: `msg_${first}` }])
    expect((await answers.outputs({ ...READER, organizationId: 'org-two' }, ids)).contents).toEqual(
      [],
    )
    await expect(answers.outputs(READER, ids)).rejects.toMatchObject({
      status: 400,
      param: 'input',
      code: 'context_length_exceeded',
    })
  })
})

describe('a conversation of an organization that now stores nothing', () => {
  it('takes no further items', async ({ database }) => {
    const { conversations } = await openStores(database)
    const id = 'conv_earlier'
    const head = { id, organizationId: ORGANIZATION, userId: null, metadata: null }
    await conversations.create({ ...head, createdAt: new Date() }, [{ id: 'msg_earlier' }])
    const append = (itemId: string) =>
      conversations.append({
        organizationId: ORGANIZATION,
        conversationId: id,
        items: [{ id: itemId }],
        createdAtMs: 0,
      })
    const retain = (days: number | null) =>
      database.pool.query('update organizations set retention_days = $1', [days])
    await retain(0)
    expect(await append('msg_secret')).toBe(false)
    await retain(null)
    expect(await append('msg_later')).toBe(true)
    const { items } = await conversations.items(READER, id, PAGE)
    expect(items.map((item) => item.id)).toEqual(['msg_earlier', 'msg_later'])
  })
})
