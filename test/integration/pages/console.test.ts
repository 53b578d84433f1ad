import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { expectUsable, keepScreenshot, type Look, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'
import { countForeignImages, reopenDialog } from '#test/support/page-probes.js'

import { act, openConsolePage, rowOf, signInByToken } from './console-page.ts'
import { type PagesStack, startPagesStack } from './pages-stack.ts'

const HOSTILE = '<img src=x onerror="document.title=1">'
const PAGES = [
  ...['series', 'queues', 'models', 'organizations', 'users', 'keys', 'usage', 'jobs', 'batches'],
  ...['fine-tuning', 'files', 'webhooks', 'activities', 'audit'],
]
const LOOKS: readonly (Look & { readonly name: string })[] = [
  { name: 'narrow-dark', width: 320, height: 700, scheme: 'dark' },
  { name: 'wide-light', width: 1600, height: 900, scheme: 'light' },
]

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack()
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

const signIn = (page: Page) => signInByToken(page, stack.tiers.url)
const open = (page: Page, name: string) => openConsolePage(page, stack.tiers.url, name)

const complete = () =>
  fetch(`${stack.tiers.url}/v1/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${stack.tiers.apiKey}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ model: 'tiny-chat', prompt: 'Once', max_tokens: 5 }),
  })

describe('the console', { timeout: PATIENCE_MS }, () => {
  it('creates, shows once and revokes a key of a new organization', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await signIn(page)
    await page.getByRole('link', { name: 'Users' }).click()
    await page.getByRole('button', { name: 'Invite' }).click()
    await page.getByLabel('Email address', { exact: true }).fill('owner@example.test')
    await page.getByRole('dialog').getByRole('button', { name: 'Invite' }).click()
    await page.getByText('The invitation is on its way.').waitFor()
    await page.getByRole('link', { name: 'Organizations' }).click()
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByLabel('Name', { exact: true }).fill(HOSTILE)
    await page.getByLabel('Email address of the owner').fill('stranger@example.test')
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
    await page.getByText('No user has this email address.').waitFor()
    await page.getByLabel('Email address of the owner').fill('owner@example.test')
    await expectUsable(page)
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
    await page.getByText('The organization is created.').waitFor()
    await rowOf(page, HOSTILE).getByRole('link', { name: '0' }).click()
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByLabel('Name', { exact: true }).fill('first')
    await page.getByLabel('chat', { exact: true }).check()
    await keepScreenshot(page, 'console-dialog')
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
    const secret = (await page.locator('code.secret').textContent()) ?? ''
    const isAccepted = async () => {
      const headers = { authorization: `Bearer ${secret}` }
      return (await fetch(`${stack.tiers.url}/v1/models`, { headers })).status
    }
    expect(await isAccepted()).toBe(200)
    await page.getByRole('button', { name: 'Close' }).click()
    expect(await page.content()).not.toContain(secret)
    await act(page, 'first', 'Revoke')
    await page.getByText('The key is revoked.').waitFor()
    await expect.poll(isAccepted).toBe(401)
    await open(page, 'audit')
    await rowOf(page, 'key.revoke').first().waitFor()
    expect(await page.evaluate(countForeignImages)).toBe(0)
    // The message about the unknown user is the only one in the console of the browser.
    expect(problems.filter((problem) => !problem.includes('404'))).toEqual([])
    await close()
  })

  it('pauses and resumes a queue, and disables a model, by keyboard', async () => {
    const { page, close } = await openPage(stack.browser)
    await signIn(page)
    await open(page, 'queues')
    await rowOf(page, 'completion.tiny-chat').getByRole('button', { name: 'Pause' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await page.evaluate(reopenDialog)
    await page.getByRole('dialog').waitFor()
    await page.keyboard.press('Enter')
    await page.getByText('The queue is paused.').waitFor()
    const answer = complete()
    await rowOf(page, 'completion.tiny-chat').getByRole('link').click()
    await rowOf(page, 'waiting').getByRole('button', { name: 'Move to the front' }).waitFor()
    await expectUsable(page)
    await open(page, 'queues')
    await act(page, 'completion.tiny-chat', 'Resume')
    expect((await answer).status).toBe(200)
    await open(page, 'models')
    await act(page, 'tiny-chat', 'Disable')
    await rowOf(page, 'disabled').waitFor()
    await expect.poll(async () => (await complete()).status).toBe(503)
    await act(page, 'tiny-chat', 'Enable')
    await expect.poll(async () => (await complete()).status).toBe(200)
    await close()
  })

  it.for(LOOKS)('shows every page on $name', async (look) => {
    const { page, problems, close } = await openPage(stack.browser, look)
    await signIn(page)
    expect((await complete()).status).toBe(200)
    for (const name of PAGES) {
      await open(page, name)
      await expectUsable(page)
      await keepScreenshot(page, `console-${name}-${look.name}`)
    }
    await open(page, 'series')
    await page.locator('canvas').first().waitFor()
    await page.getByRole('button', { name: 'Last day' }).click()
    await page.getByText('As a table').first().click()
    await page.getByRole('columnheader', { name: 'refused (4xx)' }).waitFor()
    await expectUsable(page)
    expect(problems).toEqual([])
    await close()
  })
})
