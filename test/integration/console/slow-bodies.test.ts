import { expect, type TestContext } from 'vitest'

import type { ConsoleArea } from '#api/console/api.ts'
import { openAdminSessions } from '#api/console/sessions.ts'
import { it } from '#test/support/services.ts'
import { openSlowRequest } from '#test/support/slow-body.ts'

import { openAdminApp } from './admin-app.ts'

const USER = '7d2fb1d4-8a2b-4a43-b9b4-1a7a6e0d2c11'
const FORM_SECRET = 'f'.repeat(43)

/** The console with one action, for one administrator. */
async function openConsole({
  redisUrl,
  keyPrefix,
  onTestFinished,
}: Pick<TestContext, 'onTestFinished'> & { redisUrl: string; keyPrefix: string }) {
  const acted: unknown[] = []
  const area: ConsoleArea = {
    reads: [],
    actions: [
      {
        method: 'POST',
        path: '/things',
        role: 'administrator',
        operation: 'things.create',
        body: { type: 'object' },
        handle: async ({ body }) => void acted.push(body),
      },
    ],
  }
  const lookedUp = Promise.withResolvers<void>()
  const administrators = new (class extends Map<string, string> {
    override get(userId: string): string | undefined {
      lookedUp.resolve()
      return super.get(userId)
    }
  })([[USER, 'digest']])
  const admin = await openAdminApp({ redisUrl, keyPrefix, administrators, areas: [area] })
  onTestFinished(() => admin.close())
  const sessions = openAdminSessions(admin.redis, keyPrefix)
  const secret = await sessions.open({ name: 'a', userId: USER, passwordDigest: 'digest' })
  const cookie = `millrace_admin=${secret}; millrace_admin_form=${FORM_SECRET}`
  const base = await admin.app.listen({ port: 0, host: '127.0.0.1' })
  const headers = { cookie, 'x-console-token': FORM_SECRET }
  const begin = () => openSlowRequest(`${base}/admin/api/things`, headers, { a: 1 })
  return { administrators, acted, lookedUp: lookedUp.promise, begin }
}

it('refuses an action whose administrator lost the role before its body arrived', async ({
  redisUrl,
  keyPrefix,
  onTestFinished,
}) => {
  const opened = await openConsole({ redisUrl, keyPrefix, onTestFinished })
  const { administrators, acted, lookedUp, begin } = opened
  const finish = begin()
  await lookedUp
  administrators.delete(USER)
  expect(await finish()).toMatchObject({ status: 401 })
  expect(acted).toEqual([])
})

it('accepts the slow action of an administrator', async ({
  redisUrl,
  keyPrefix,
  onTestFinished,
}) => {
  const { acted, lookedUp, begin } = await openConsole({ redisUrl, keyPrefix, onTestFinished })
  const finish = begin()
  await lookedUp
  expect(await finish()).toMatchObject({ status: 200 })
  expect(acted).toEqual([{ a: 1 }])
})
