import type { Locator, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { type PagesStack, startPagesStack } from './pages-stack.ts'

const OPERATION = '.opblock:has([data-path="/v1/engines"])'

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack()
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

/** Operations are drawn when their group is opened. */
async function openOperation(page: Page): Promise<Locator> {
  const operation = page.locator(OPERATION).first()
  await page.locator('[data-tag="Engines"]').first().click()
  await operation.waitFor()
  return operation
}

describe('the page of the API', { timeout: PATIENCE_MS }, () => {
  it('sends a request with a key, under a policy that allows no inline script and nothing foreign', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    const answer = await page.goto(`${stack.tiers.url}/docs`)
    const policy = (await answer?.headerValue('content-security-policy')) ?? ''
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
    expect(policy).toContain("frame-ancestors 'none'")
    expect(policy).not.toMatch(/unsafe|https?:\/\/(?!127\.0\.0\.1|localhost)|\*/)
    await page.getByRole('button', { name: 'Authorize' }).first().click()
    await page.locator('.auth-container input').first().fill(stack.tiers.apiKey)
    await page.locator('.auth-container button.authorize').first().click()
    await page.locator('.auth-container button.btn-done').first().click()
    const operation = await openOperation(page)
    await operation.locator('.opblock-summary-control').click()
    await operation.getByRole('button', { name: 'Execute' }).click()
    await operation.locator('.live-responses-table').getByText('tiny-chat').first().waitFor()
    expect(problems).toEqual([])
    await close()
  })

  it('is the same with a query, and describes nothing from elsewhere', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    const query = '?ref=mail&url=https://elsewhere.example/openapi.json'
    await page.goto(`${stack.tiers.url}/docs${query}`)
    await openOperation(page)
    expect(problems).toEqual([])
    await close()
  })
})
