import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'
import { findInjected } from '#test/support/page-probes.js'

import { openConsolePage, post, serviceToken, signInByToken } from './console-page.ts'
import { type PagesStack, startPagesStack } from './pages-stack.ts'

const HOSTILE = `"'></td><img src=x onerror="document.title=1"><svg onload=alert(1)><a href=javascript:alert(1)>`
/** Names of files have no slashes. */
const HOSTILE_NAME = HOSTILE.replaceAll('/', '')

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack({ env: { MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true' } })
  await plantNames()
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

async function send(path: string, body: object, bearer = stack.tiers.apiKey) {
  const answer = await post(`${stack.tiers.url}${path}`, body, bearer)
  const text = await answer.text()
  expect(answer.ok, `${path}: ${text}`).toBe(true)
  return JSON.parse(text) as Record<string, string>
}

async function upload(purpose: string, content: string): Promise<string> {
  const body = new FormData()
  body.set('purpose', purpose)
  body.set('file', new Blob([content]), HOSTILE_NAME)
  const headers = { authorization: `Bearer ${stack.tiers.apiKey}` }
  const answer = await fetch(`${stack.tiers.url}/v1/files`, { method: 'POST', headers, body })
  return ((await answer.json()) as { id: string }).id
}

/** Gives every kind of thing that the console lists a hostile name, as clients may. */
async function plantNames(): Promise<void> {
  const metadata = { [HOSTILE.slice(0, 60)]: HOSTILE }
  const password = 'a long password of the tests'
  const email = 'hostile@example.test'
  const data = { full_name: HOSTILE, name: HOSTILE, avatar_url: 'javascript:alert(1)' }
  const user = { email, password, email_confirm: true, user_metadata: data }
  await send('/admin/users', user, await serviceToken())
  const signedIn = await send('/token?grant_type=password', { email, password }, 'none')
  await send('/v1/organizations', { name: HOSTILE }, signedIn.access_token)
  await send('/v1/api_keys', { name: HOSTILE })
  await send('/v1/webhook_endpoints', {
    url: `https://hooks.example.test/"onmouseover="alert(1)?${HOSTILE.replaceAll(' ', '/')}`,
    description: HOSTILE,
  })
  const activity = {
    '@context': 'https://www.w3.org/ns/activitystreams',
    type: 'Create',
    actor: 'javascript:alert(1)',
    summary: HOSTILE,
    object: { type: 'Note', name: HOSTILE, url: 'javascript:alert(1)' },
  }
  await send('/v1/activities', activity)
  const request = { model: 'tiny-chat', input: HOSTILE, metadata }
  await send('/v1/responses', {
    ...request,
    background: true,
    safety_identifier: HOSTILE_NAME.slice(0, 60),
  })
  const messages = [{ role: 'user', content: HOSTILE }]
  const line = {
    custom_id: HOSTILE,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'tiny-chat', messages },
  }
  await send('/v1/batches', {
    input_file_id: await upload('batch', JSON.stringify(line)),
    endpoint: line.url,
    completion_window: '24h',
    metadata,
  })
  const example = { messages: [...messages, { role: 'assistant', content: HOSTILE }] }
  const examples = Array.from({ length: 10 }, () => JSON.stringify(example)).join('\n')
  await send('/v1/fine_tuning/jobs', {
    model: 'tiny-chat',
    training_file: await upload('fine-tune', examples),
    metadata,
  })
}

async function expectHarmless(page: Page): Promise<void> {
  expect(await page.evaluate(findInjected)).toEqual([])
  expect(await page.title()).toContain('Millrace')
}

describe('hostile names', { timeout: PATIENCE_MS }, () => {
  it('are texts on every page of the console, and make no link and no element', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await signInByToken(page, stack.tiers.url)
    const names = await page
      .locator('nav a[href*="/console/"], nav a[href^="console/"]')
      .evaluateAll((links) => links.map((link) => link.getAttribute('href')?.split('/').at(-1)))
    expect(names.length).toBeGreaterThan(10)
    const seen: string[] = []
    for (const name of names) {
      await openConsolePage(page, stack.tiers.url, `${name}`)
      await expectHarmless(page)
      const text = await page.locator('main').innerText()
      if (text.includes('onerror="document.title=1"')) seen.push(`${name}`)
      // Each first row that leads further is looked at, too.
      const further = page.locator('main td a').first()
      if ((await further.count()) === 0) continue
      await further.click()
      await page.getByText('Loading …').first().waitFor({ state: 'detached' })
      await expectHarmless(page)
    }
    expect(seen).toEqual(expect.arrayContaining(['organizations', 'keys', 'files', 'webhooks']))
    expect(problems).toEqual([])
    await close()
  })
})
