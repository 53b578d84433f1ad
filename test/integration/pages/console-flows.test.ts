import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'

import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { queueKeys } from '#shared/queue/keys.ts'
import { startHub, type TestHub } from '#test/integration/models/hub-server.ts'
import { openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import {
  act,
  enrollAuthenticator,
  openConsolePage,
  PASSWORD,
  post,
  rowOf,
  serviceToken,
  signInByToken,
} from './console-page.ts'
import { type PagesStack, startPagesStack } from './pages-stack.ts'

let hub: TestHub
let stack: PagesStack

beforeAll(async () => {
  hub = await startHub({ 'config.json': '{}', 'onnx/model.onnx': Buffer.alloc(5000) })
  stack = await startPagesStack({
    env: { HF_ENDPOINT: hub.endpoint, MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true' },
  })
}, BROWSER_TIMEOUT_MS)
afterAll(async () => {
  await stack?.stop()
  await hub?.close()
})

const open = (page: Page, name: string) => openConsolePage(page, stack.tiers.url, name)

async function v1(path: string, body: object): Promise<Record<string, string>> {
  const answer = await post(`${stack.tiers.url}/v1${path}`, body, stack.tiers.apiKey)
  const answered = await answer.text()
  expect(answer.ok, answered).toBe(true)
  return JSON.parse(answered)
}

/** A signed-in page; what its console complains about is none of these tests. */
async function openSignedIn(): Promise<Page> {
  const { page } = await openPage(stack.browser)
  await signInByToken(page, stack.tiers.url)
  return page
}

/** Stores a file; resolves with its id. */
async function upload(purpose: string, name: string, content: string): Promise<string> {
  const body = new FormData()
  body.set('purpose', purpose)
  body.set('file', new Blob([content]), name)
  const headers = { authorization: `Bearer ${stack.tiers.apiKey}` }
  const answer = await fetch(`${stack.tiers.url}/v1/files`, { method: 'POST', headers, body })
  return ((await answer.json()) as { id: string }).id
}

/** Fills the fields of the open dialog in, and sends it. */
async function submit(page: Page, action: string, fields: Readonly<Record<string, string>>) {
  const dialog = page.getByRole('dialog')
  for (const [label, value] of Object.entries(fields)) {
    // A label holds its hint, or the options of its select.
    const field = dialog.getByLabel(new RegExp(`^${label}`))
    if (['Kind', 'Role'].includes(label)) await field.selectOption(value)
    else await field.fill(value)
  }
  await dialog.getByRole('button', { name: action, exact: true }).click()
}

describe('the flows of the console', { timeout: PATIENCE_MS }, () => {
  it('bans a user, lifts the ban, sets a role, resets factors and ends sessions', async () => {
    const email = 'member@example.test'
    const user = { email, password: PASSWORD, email_confirm: true }
    const { url } = stack.tiers
    expect((await post(`${url}/admin/users`, user, await serviceToken())).status).toBe(200)
    await enrollAuthenticator(url, email)
    const page = await openSignedIn()
    await open(page, 'users')
    await act(page, email, 'End sessions')
    await page.getByText('The sessions are ended.').waitFor()
    await act(page, email, 'Reset factors')
    await page.getByText('The second factors are removed.').waitFor()
    // A change that takes something from a user looks dangerous before it is confirmed.
    await rowOf(page, email).getByRole('button', { name: 'Ban' }).click()
    const confirmation = page.getByRole('dialog').getByRole('button', { name: 'Ban', exact: true })
    expect(await confirmation.getAttribute('class')).toBe('danger')
    await confirmation.click()
    await rowOf(page, email).getByText('banned').waitFor()
    await act(page, email, 'Unban')
    await rowOf(page, email).getByText('active').waitFor()
    await rowOf(page, email).getByRole('button', { name: 'Console role' }).click()
    await submit(page, 'Console role', { Role: 'viewer' })
    await page.getByText('The role is changed.').waitFor()
    await page.context().close()
  })

  it('shows a viewer the pages without their changes', async () => {
    const { page } = await openPage(stack.browser)
    await page.goto(`${stack.tiers.url}/admin`)
    await page.getByLabel('Email address of an administrator').fill('member@example.test')
    await page.getByLabel('Password').fill(PASSWORD)
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    await open(page, 'queues')
    await rowOf(page, 'completion.tiny-chat').waitFor()
    expect(await page.getByRole('button', { name: 'Pause' }).count()).toBe(0)
    expect(await page.getByRole('link', { name: 'Audit log' }).count()).toBe(0)
    const audit = await page.goto(`${stack.tiers.url}/admin/console/audit`)
    expect(audit?.status()).toBe(403)
    await page.getByText('This page needs the console role administrator; yours is').waitFor()
    await page.getByRole('link', { name: 'Queues' }).waitFor()
    await page.context().close()
  })

  it('rotates a key, whose old secret ends', async () => {
    const page = await openSignedIn()
    await open(page, 'organizations')
    await rowOf(page, 'Default').getByRole('link').last().click()
    await page.getByRole('button', { name: 'Create' }).click()
    await submit(page, 'Create', { Name: 'turned', 'Days until it expires': '7' })
    const secret = async () => (await page.locator('code.secret').textContent()) ?? ''
    const statusOf = async (key: string) =>
      (await fetch(`${stack.tiers.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } }))
        .status
    const first = await secret()
    await page.getByRole('button', { name: 'Close' }).click()
    await rowOf(page, 'turned').getByRole('button', { name: 'Rotate' }).click()
    await submit(page, 'Rotate', {})
    await expect.poll(secret).not.toBe(first)
    expect(await statusOf(await secret())).toBe(200)
    await expect.poll(() => statusOf(first)).toBe(401)
    await page.context().close()
  })

  it('changes the limits of a key, which take effect', async () => {
    const { id, secret = '' } = await v1('/api_keys', { name: 'limited in the console' })
    const page = await openSignedIn()
    await open(page, 'keys')
    const row = rowOf(page, id ?? '')
    await row.getByText('none of its own').waitFor()
    await row.getByRole('button', { name: 'Limits' }).click()
    await submit(page, 'Limits', { 'Requests in a minute': '1' })
    await page.getByText('The limits are changed.').waitFor()
    await row.getByText('1 requests a minute').waitFor()
    const headers = { authorization: `Bearer ${secret}` }
    const statusOf = async () => (await fetch(`${stack.tiers.url}/v1/models`, { headers })).status
    await expect.poll(statusOf).toBe(429)
    await page.context().close()
  })

  it('adds a model of the hub, shows its download, and removes it', async () => {
    let finish = () => {}
    hub.instead = (request, response) => {
      if (!decodeURIComponent(request.url ?? '').includes('model.onnx')) return false
      response.writeHead(200, { 'content-length': 5000 }).write(Buffer.alloc(2500))
      finish = () => response.destroy()
      return true
    }
    const page = await openSignedIn()
    await open(page, 'models')
    await page.getByRole('button', { name: 'Add a model' }).click()
    await page.getByRole('dialog').getByLabel('embedding', { exact: true }).check()
    await submit(page, 'Add a model', {
      Files: 'hub:someone/some-model',
      'Model id': 'fetched',
      Kind: 'embedding',
    })
    await rowOf(page, 'fetched').getByText('model.onnx').waitFor()
    await act(page, 'fetched', 'Remove')
    await page.getByText('The model is removed.').waitFor()
    finish()
    await page.context().close()
  })

  it('exports usage as CSV', async () => {
    await v1('/completions', { model: 'tiny-chat', prompt: 'Once', max_tokens: 5 })
    const page = await openSignedIn()
    await open(page, 'usage')
    await page.getByLabel('Summed by').selectOption('model')
    await page.getByRole('button', { name: 'Show' }).click()
    await rowOf(page, 'tiny-chat').waitFor()
    const downloading = page.waitForEvent('download')
    await page.getByRole('link', { name: 'Download as CSV' }).click()
    const path = await (await downloading).path()
    expect(readFileSync(path, 'utf8')).toMatch(/tiny-chat/)
    await page.context().close()
  })

  it('cancels a background job, a batch and a training that wait, and shows files', async () => {
    const page = await openSignedIn()
    await open(page, 'queues')
    for (const kind of ['completion', 'training']) await act(page, `${kind}.tiny-chat`, 'Pause')
    await v1('/responses', { model: 'tiny-chat', input: 'Hi', background: true })
    const messages = [{ role: 'user', content: 'Hi' }]
    const answer = { role: 'assistant', content: 'Hello' }
    const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions' }
    const batchLine = JSON.stringify({ ...line, body: { model: 'tiny-chat', messages } })
    const inputFile = await upload('batch', 'lines.jsonl', batchLine)
    const batch = { input_file_id: inputFile, endpoint: line.url, completion_window: '24h' }
    await v1('/batches', batch)
    const example = JSON.stringify({ messages: [...messages, answer] })
    const examples = Array.from({ length: 10 }, () => example).join('\n')
    const trainingFile = await upload('fine-tune', 'examples.jsonl', examples)
    await v1('/fine_tuning/jobs', { model: 'tiny-chat', training_file: trainingFile })
    for (const [name, row, action, done] of [
      ['jobs', '/v1/responses', 'Cancel job', 'The job is being cancelled.'],
      ['batches', line.url, 'Cancel batch', 'The batch is being cancelled.'],
      ['fine-tuning', 'ftjob-', 'Cancel job', 'The job is cancelled.'],
    ] as const) {
      await open(page, name)
      await act(page, row, action)
      await page.getByText(done).waitFor()
    }
    await open(page, 'queues')
    for (const kind of ['completion', 'training']) await act(page, `${kind}.tiny-chat`, 'Resume')
    await open(page, 'files')
    await rowOf(page, 'lines.jsonl').waitFor()
    await page.context().close()
  })

  it('redelivers an event, and disables and enables its endpoint', async () => {
    const received: string[] = []
    const server = createServer(async (request, response) => {
      const { type } = (await json(request)) as { type: string }
      // The events of earlier tests arrive as well.
      if (type === 'webhook.test') received.push(type)
      response.end()
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
    const endpoint = await v1('/webhook_endpoints', { url })
    await v1(`/webhook_endpoints/${endpoint.id}/test`, {})
    await expect.poll(() => received.length, { timeout: 15_000 }).toBe(1)
    const page = await openSignedIn()
    await open(page, 'webhooks')
    await act(page, url, 'Disable')
    await page.getByText('The endpoint is disabled.').waitFor()
    await act(page, url, 'Enable')
    await page.getByText('The endpoint is enabled.').waitFor()
    await rowOf(page, url).getByRole('link').first().click()
    await act(page, 'webhook.test', 'Redeliver')
    await expect.poll(() => received.length, { timeout: 15_000 }).toBe(2)
    server.close()
    await page.context().close()
  })

  it('offers to retry dead letters whose input is kept, and clears them', async () => {
    const redis = new Redis(stack.redisUrl)
    const rest = { kind: 'completion', modelId: 'tiny-chat', epoch: 3, organizationId: 'org' }
    const { deadJobs, deadInput } = queueKeys(stack.keyPrefix)
    for (const jobId of ['job_dead', 'job_kept']) {
      const letter = { jobId, ...rest, enqueuedAtMs: 1, inputBytes: 1, reason: 'worker_crashed' }
      await redis.lpush(deadJobs, JSON.stringify(letter))
    }
    await redis.set(deadInput('job_kept'), 'x')
    redis.disconnect()
    const page = await openSignedIn()
    await open(page, 'queues')
    await rowOf(page, 'job_kept').getByRole('button', { name: 'Retry' }).waitFor()
    expect(await rowOf(page, 'job_dead').getByRole('button').count()).toBe(0)
    await page.getByRole('button', { name: 'Clear' }).click()
    await submit(page, 'Clear', {})
    await page.getByText('The dead letters are deleted.').waitFor()
    await page.context().close()
  })
})
