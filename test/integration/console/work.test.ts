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

async function upload(purpose: string, name: string, text: string) {
  const form = new FormData()
  form.set('purpose', purpose)
  form.set('file', new Blob([text]), name)
  const request = new Request('http://x', { method: 'POST', body: form })
  return stack.app.inject({
    method: 'POST',
    url: '/v1/files',
    headers: {
      authorization: 'Bearer mr-a-key-of-the-tests',
      'content-type': request.headers.get('content-type') ?? '',
    },
    payload: Buffer.from(await request.arrayBuffer()),
  })
}

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

  it('get another priority while they wait', async () => {
    const createdAt = new Date()
    const later = new Date(createdAt.getTime() + 3_600_000)
    const job = {
      organizationId,
      id: 'job_later',
      endpoint: '/v1/embeddings',
      contentType: 'application/json',
      request: Buffer.from('{}'),
      priority: 1,
      createdAt,
      notBefore: later,
      expiresAt: later,
    }
    const limits = { openMax: 100, openBytesMax: 1e6, onlyStored: false }
    await stack.services.background.jobs.create(job, limits)
    const path = `jobs/${organizationId}/${job.id}/priority`
    await operator.send('POST', path, { priority: 'priority' })
    const { rows } = await operator.read('jobs?state=queued')
    expect(rows).toMatchObject([{ id: job.id, priority: 2 }])
    await operator.send('POST', `jobs/${organizationId}/${job.id}/cancel`)
    const body = { priority: 'flex' }
    expect(await operator.attempt('POST', path, { body })).toMatchObject({ status: 409 })
  })
})

describe('fine-tuning jobs', () => {
  it('are listed, paused, resumed and cancelled', async () => {
    const messages = [
      { role: 'user', content: PROMPT },
      { role: 'assistant', content: 'An answer.' },
    ]
    const lines = Array.from({ length: 10 }, () => JSON.stringify({ messages })).join('\n')
    const file = await upload('fine-tune', 'examples.jsonl', lines)
    const { id } = await stack.v1('POST', '/fine_tuning/jobs', {
      model: 'tiny-chat',
      training_file: file.json().id,
    })
    const path = `fine-tuning/${organizationId}/${id}`
    const state = async () => (await operator.read('fine-tuning')).rows[0].state
    await operator.send('POST', `${path}/pause`)
    expect(await state()).toBe('paused')
    const refused = await operator.attempt('POST', `${path}/pause`)
    expect(refused).toMatchObject({ status: 409, code: 'invalid_status' })
    // The run that was paused ends first.
    const resume = async () => (await operator.attempt('POST', `${path}/resume`)).status
    await expect.poll(resume, { timeout: 15_000 }).toBe(200)
    expect(await state()).toMatch(/^(validating_files|queued)$/)
    await operator.send('POST', `${path}/cancel`)
    expect(await state()).toBe('cancelled')
    const { text } = await operator.attempt('GET', 'fine-tuning')
    expect(text).not.toContain(PROMPT)
    expect((await operator.attempt('POST', `${path}/resume`)).status).toBe(409)
    expect((await operator.attempt('POST', path.replace(id, 'none/pause'))).status).toBe(404)
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
    expect((await upload('user_data', 'notes.txt', PROMPT)).statusCode).toBe(200)
    const { rows } = await operator.read(`files?organization=${organizationId}`)
    // Beside it are the outputs of the cancelled batch.
    const [notes] = rows.filter((row: { purpose: string }) => row.purpose === 'user_data')
    expect(notes).toMatchObject({ filename: 'notes.txt', bytes: 30 })
    expect(JSON.stringify(rows)).not.toContain(PROMPT)
    const find = async () => (await operator.read('activities?query=Create')).rows
    const recorded = { type: 'Create', object: `file:${notes.id}`, organization_id: organizationId }
    await expect.poll(find, { timeout: 15_000 }).toContainEqual(expect.objectContaining(recorded))
    expect((await operator.read('files?organization=org-none')).rows).toEqual([])
  })
})
