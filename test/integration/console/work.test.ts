import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type ConsoleClient, type ConsoleStack, openConsole } from './console-stack.ts'

const PROMPT = 'a prompt that no page may show'
let stack: ConsoleStack
let operator: ConsoleClient
let organizationId: string

beforeAll(async () => {
  stack = await openConsole({ MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true' })
  operator = await stack.signIn('operator')
  organizationId = (await operator.read('organizations?query=Default')).rows[0].id
})
afterAll(() => stack?.close())

describe('background jobs', () => {
  it('are listed without their content, and cancelled', async () => {
    const { id } = await stack.v1('POST', '/responses', {
      model: 'tiny-chat',
      input: PROMPT,
      background: true,
    })
    const find = async () => (await operator.read('jobs?state=')).rows[0]
    expect(await find()).toMatchObject({ organization_id: organizationId, model: 'tiny-chat' })
    const { text } = await operator.attempt('GET', 'jobs')
    expect(text).not.toContain(PROMPT)
    const job = await find()
    await operator.send('POST', `jobs/${organizationId}/${job.id}/cancel`)
    await expect.poll(async () => (await find()).state, { timeout: 15_000 }).toBe('cancelled')
    expect((await stack.v1('GET', `/responses/${id}`)).status).toBe('cancelled')
    const other = await operator.attempt('POST', `jobs/${organizationId}/job_none/cancel`)
    expect(other.status).toBe(404)
  })
})

describe('batches', () => {
  it('are listed, and cancelled', async () => {
    // No worker serves its model, so that it waits.
    const body = { model: 'tiny-chat', messages: [{ role: 'user', content: 'Hi' }] }
    const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body }
    await stack.services.store.put('files/batch_console', Buffer.from(JSON.stringify(line)))
    const batch = await stack.services.batches.create(
      {
        id: 'batch_console',
        organizationId,
        modelIds: null,
        apiKeyId: undefined,
        userId: undefined,
        endpoint: '/v1/chat/completions',
        inputFileId: 'file-1',
        inputObjectKey: 'files/batch_console',
        completionWindow: '24h',
        windowSeconds: 86_400,
        metadata: null,
        outputRetentionSeconds: null,
      },
      10,
    )
    const find = async () => (await operator.read('batches')).rows[0]
    expect(await find()).toMatchObject({
      id: batch?.id,
      endpoint: '/v1/chat/completions',
      state: expect.stringMatching(/^(validating|in_progress)$/),
    })
    await operator.send('POST', `batches/${organizationId}/${batch?.id}/cancel`)
    await expect.poll(async () => (await find()).state).toBe('cancelled')
  })
})

describe('webhooks', () => {
  it('are listed with their deliveries, disabled, and redelivered', async () => {
    const received: string[] = []
    const server = createServer((request, response) => {
      received.push(String(request.headers['webhook-id']))
      response.end()
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
    const endpoint = await stack.v1('POST', '/webhook_endpoints', { url })
    await stack.v1('POST', `/webhook_endpoints/${endpoint.id}/test`)
    await expect.poll(() => received.length, { timeout: 15_000 }).toBe(1)
    const { rows } = await operator.read('webhooks?state=enabled')
    expect(rows).toMatchObject([{ id: endpoint.id, url, organization_id: organizationId }])
    expect(JSON.stringify(rows)).not.toContain(endpoint.secret)
    const path = `webhooks/${endpoint.id}/deliveries`
    const { rows: deliveries } = await operator.read(path)
    expect(deliveries).toMatchObject([{ type: 'webhook.test' }])
    await operator.send('POST', `${path}/${deliveries[0].id}/redeliver`)
    await expect.poll(() => received.length, { timeout: 15_000 }).toBe(2)
    expect(received[0]).toBe(received[1])
    await operator.send('PATCH', `webhooks/${organizationId}/${endpoint.id}`, { disabled: true })
    expect((await operator.read('webhooks?state=disabled')).rows).toHaveLength(1)
    server.close()
  })
})

describe('files and activities', () => {
  it('are listed as metadata of all organizations', async () => {
    const form = new FormData()
    form.set('purpose', 'user_data')
    form.set('file', new Blob([PROMPT]), 'notes.txt')
    const upload = new Request('http://x', { method: 'POST', body: form })
    const answer = await stack.app.inject({
      method: 'POST',
      url: '/v1/files',
      headers: {
        authorization: 'Bearer mr-a-key-of-the-tests',
        'content-type': upload.headers.get('content-type') ?? '',
      },
      payload: Buffer.from(await upload.arrayBuffer()),
    })
    expect(answer.statusCode).toBe(200)
    const { rows } = await operator.read(`files?organization=${organizationId}`)
    // Beside it are the outputs of the cancelled batch.
    const [notes] = rows.filter((row: { purpose: string }) => row.purpose === 'user_data')
    expect(notes).toMatchObject({ filename: 'notes.txt', bytes: 30 })
    expect(JSON.stringify(rows)).not.toContain(PROMPT)
    const find = async () => (await operator.read('activities?query=Create')).rows
    await expect
      .poll(find, { timeout: 15_000 })
      .toMatchObject([
        { type: 'Create', object: `file:${notes.id}`, organization_id: organizationId },
      ])
    expect((await operator.read('files?organization=org-none')).rows).toEqual([])
  })
})
