import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { startTiers } from '#test/support/tiers.ts'

interface Activity {
  type: string
  event: string
  actor: string
  object: { id: string; type: string }
  generator: string
  request_id: string
}

const TIMEOUT = { timeout: 180_000 }
const POLL = { interval: 200 }

describe('the activities of the platform itself', () => {
  it(
    'records who did what under which request, without secrets and prompts',
    TIMEOUT,
    async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
      const env = { AUTH_MAILER_AUTOCONFIRM: 'true' }
      const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env })
      try {
        await tiers.startWorker()
        const send = async (secret: string, method: string, path: string, body?: unknown) => {
          const isForm = body instanceof FormData
          const answer = await fetch(`${tiers.url}${path}`, {
            method,
            headers: {
              authorization: `Bearer ${secret}`,
              ...(body !== undefined && !isForm && { 'content-type': 'application/json' }),
            },
            ...(body !== undefined && { body: isForm ? body : JSON.stringify(body) }),
          })
          const requestId = answer.headers.get('x-request-id')
          const json = (await answer.json()) as Record<string, string>
          return { status: answer.status, requestId, json }
        }
        const list = async (secret: string): Promise<Activity[]> => {
          const { json } = await send(secret, 'GET', '/v1/activities?limit=100&order=asc')
          return (json.data as never as { activity: Activity }[]).map(({ activity }) => activity)
        }

        const person = { email: 'ada@example.test', password: 'a long pass phrase' }
        await send('', 'POST', '/signup', person)
        const { json: session } = await send('', 'POST', '/token?grant_type=password', person)
        const token = session.access_token as string
        const userId = (session.user as never as { id: string }).id
        await expect
          .poll(async () => (await list(token)).map(({ event }) => event), POLL)
          .toEqual(expect.arrayContaining(['user.signed_up', 'user.signed_in']))
        const ofUser = await list(token)
        for (const activity of ofUser) {
          expect(activity).toMatchObject({
            actor: `user:${userId}`,
            object: { id: `user:${userId}`, type: 'Person' },
            generator: 'millrace',
            request_id: expect.stringMatching(/^req_/),
          })
        }

        const key = tiers.apiKey
        const made = await send(key, 'POST', '/v1/api_keys', { name: 'for a test' })
        const keyId = made.json.id as string
        const rotated = await send(key, 'POST', `/v1/api_keys/${keyId}/rotate`, {})
        const revoked = await send(key, 'DELETE', `/v1/api_keys/${keyId}`)
        const form = new FormData()
        form.append('purpose', 'user_data')
        form.append('file', new Blob(['a secret text']), 'notes.txt')
        const stored = await send(key, 'POST', '/v1/files', form)
        const deleted = await send(key, 'DELETE', `/v1/files/${stored.json.id}`)
        const prompt = 'a secret prompt'
        const completion = { model: 'tiny-chat', prompt, max_tokens: 3 }
        const done = await send(key, 'POST', '/v1/completions', completion)
        expect([made, rotated, revoked, stored, deleted, done].map(({ status }) => status)).toEqual(
          Array(6).fill(200),
        )

        const expected = [
          ['key.created', 'Create', `key:${keyId}`, made.requestId],
          ['key.rotated', 'Update', `key:${keyId}`, rotated.requestId],
          ['key.revoked', 'Delete', `key:${keyId}`, revoked.requestId],
          ['file.stored', 'Create', `file:${stored.json.id}`, stored.requestId],
          ['file.deleted', 'Delete', `file:${stored.json.id}`, deleted.requestId],
          ['job.finished', 'Create', expect.stringMatching(/^job:job_/), done.requestId],
        ]
        await expect
          .poll(
            async () =>
              (await list(key)).map(({ event, type, object, request_id }) => [
                event,
                type,
                object.id,
                request_id,
              ]),
            POLL,
          )
          .toEqual(expected)
        const own = await list(key)
        expect(new Set(own.map(({ actor }) => actor)).size).toBe(1)
        expect(own[0]?.actor).toMatch(/^key:key_/)
        const text = JSON.stringify([...own, ...ofUser])
        for (const secret of [
          made.json.secret,
          rotated.json.secret,
          prompt,
          'a secret',
          'pass phrase',
        ])
          expect(text).not.toContain(secret)
      } finally {
        await tiers.stop()
      }
    },
  )
})
