import multipart from '@fastify/multipart'
import { afterEach, expect } from 'vitest'

import { readForm } from '#api/http/form.ts'
import { registerKeys } from '#api/inference/keys.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { systemClock } from '#shared/clock.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { failure } from '#shared/errors.ts'
import { it } from '#test/support/services.ts'
import { openSlowRequest } from '#test/support/slow-body.ts'
import { openV1App } from '#test/support/v1-app.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

/** The endpoints of API keys, with a clock that the test moves. */
async function openKeys(database: Database) {
  let aheadMs = 0
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs }
  const stored = openApiKeys(database.db, organizationTables(''))
  const lookedUp = Promise.withResolvers<void>()
  const apiKeys: typeof stored = {
    ...stored,
    async findBySecretHash(sha256) {
      const key = await stored.findBySecretHash(sha256)
      lookedUp.resolve()
      return key
    },
  }
  const services = { apiKeys, clock, config: {}, note: () => {} } as unknown as InferenceServices
  const surface = async (app: Parameters<typeof registerKeys>[0]) => registerKeys(app, services)
  const opened = await openV1App(database, [surface], { apiKeys, clock })
  closers.push(() => opened.app.close())
  return {
    ...opened,
    apiKeys,
    /** Resolves when the first credential was looked up. */
    lookedUp: lookedUp.promise,
    advance: (ms: number) => {
      aheadMs += ms
    },
  }
}

it('refuses a request whose key was revoked before its body arrived', async ({ database }) => {
  const { base, key, apiKeys, lookedUp, advance } = await openKeys(database)
  const [revoked] = await apiKeys.list('org-one')
  const finish = openSlowRequest(
    `${base}/v1/api_keys`,
    { authorization: `Bearer ${key}` },
    { name: 'for later' },
  )
  await lookedUp
  expect(await apiKeys.revoke('org-one', revoked?.id ?? '')).toBe(true)
  advance(1000)
  expect(await finish()).toMatchObject({
    status: 401,
    body: { error: { code: 'invalid_api_key' } },
  })
  expect(await apiKeys.list('org-one')).toEqual([])
})

it('accepts a slow body of a valid key', async ({ database }) => {
  const { base, key, lookedUp, advance } = await openKeys(database)
  const finish = openSlowRequest(
    `${base}/v1/api_keys`,
    { authorization: `Bearer ${key}` },
    { name: 'slow' },
  )
  await lookedUp
  advance(1000)
  expect(await finish()).toMatchObject({ status: 200, body: { name: 'slow' } })
})

it('refuses a form whose key was revoked before its end', async ({ database }) => {
  const [tables, begun] = [organizationTables(''), Promise.withResolvers<void>()]
  const apiKeys = openApiKeys(database.db, tables)
  let aheadMs = 0
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs }
  const surface = async (app: Parameters<typeof registerKeys>[0]) => {
    await app.register(multipart)
    app.post('/forms', { config: { scope: 'files' } }, async (request) => {
      begun.resolve()
      const rules = { fields: ['purpose'], files: [], bytesMax: 1000 }
      const refuse = () => failure.tooLarge('The form is too large.')
      return readForm(request, { ...rules, tooLarge: refuse, receive: async () => '' })
    })
  }
  const { app, base, key } = await openV1App(database, [surface], { apiKeys, clock })
  closers.push(() => app.close())
  const form = '--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--b--\r\n'
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'multipart/form-data; boundary=b',
  }
  const finish = openSlowRequest(`${base}/v1/forms`, headers, Buffer.from(form))
  await begun.promise
  const [revoked] = await apiKeys.list('org-one')
  await apiKeys.revoke('org-one', revoked?.id ?? '')
  aheadMs = 1000
  expect(await finish()).toMatchObject({ status: 401 })
})
