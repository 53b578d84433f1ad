import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, it } from 'vitest'

import { queueName } from '#shared/contracts/job.ts'
import { keepScreenshot, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { ADMIN_TOKEN, type PagesStack, startPagesStack } from './pages-stack.ts'

let stack: PagesStack
let redis: Redis

beforeAll(async () => {
  stack = await startPagesStack({})
  redis = new Redis(stack.redisUrl, { maxRetriesPerRequest: null })
}, BROWSER_TIMEOUT_MS)
afterAll(async () => {
  redis?.disconnect()
  await stack?.stop()
})

const HOSTILE = '</script><img src=x onerror="document.title=`hacked`">'

it('the queue dashboard shows queues and jobs within its policy, and no prompt', {
  timeout: PATIENCE_MS,
}, async () => {
  const name = queueName('completion', 'tiny-chat')
  const queue = new Queue(name, { connection: redis, prefix: stack.keyPrefix })
  const input = { task: 'generate', prompt: 'a private story' }
  // Not yet to be taken by the worker.
  const data = { jobId: 'cmpl-1', kind: 'completion', modelId: 'tiny-chat', input }
  await queue.add(HOSTILE, data, { delay: 600_000 })
  const { page, problems, close } = await openPage(stack.browser)
  try {
    await page.goto(`${stack.tiers.url}/admin/sign-in`)
    await page.getByLabel('Or the admin token').fill(ADMIN_TOKEN)
    await page.getByRole('button', { name: 'Sign in with the token' }).click()
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    const foreign: string[] = []
    page.on('request', (request) => {
      if (!request.url().startsWith(stack.tiers.url)) foreign.push(request.url())
    })
    await page.goto(`${stack.tiers.url}/admin/queues/`)
    await page.getByText(name).first().waitFor()
    await page.getByText('1 Job').first().waitFor()
    await keepScreenshot(page, 'queue-board')
    await page.goto(
      `${stack.tiers.url}/admin/queues/queue/${encodeURIComponent(name)}?status=delayed`,
    )
    // The name of a job is shown as text and runs nothing.
    await page.getByText(HOSTILE).first().waitFor()
    expect(await page.locator('img[src="x"]').count()).toBe(0)
    expect(await page.title()).not.toBe('hacked')
    expect(await page.content()).not.toContain('a private story')
    // Neither the policy nor anything else had something to complain of.
    expect(problems).toEqual([])
    expect(foreign).toEqual([])
  } finally {
    await close()
    await queue.obliterate({ force: true })
    await queue.close()
  }
})
