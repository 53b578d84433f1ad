import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { expectUsable, keepScreenshot, LOOKS, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { type PagesStack, startPagesStack } from './pages-stack.ts'

const PASSWORD = 'a long password of the tests'

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack({
    // So that a renewal is due at once, and mails may follow each other.
    env: { AUTH_JWT_EXP: '61', AUTH_SMTP_MAX_FREQUENCY: '0s' },
  })
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

/** Opens the sign-in card with the email fields. */
async function openSignIn(page: Page): Promise<void> {
  await page.goto(stack.tiers.url)
  await page.getByRole('button', { name: 'E-mail' }).click()
}

/** The link in the next mail to an address. */
async function linkTo(address: string): Promise<string> {
  const mail = await stack.mail.waitFor(address)
  return /href="([^"]+)"/.exec(mail.html ?? '')?.[1]?.replaceAll(/&(amp|#38);/g, '&') ?? ''
}

async function chat(page: Page): Promise<void> {
  await page.getByLabel('Your message').fill('What is the capital of France?')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.locator('.turn.assistant p').filter({ hasText: /\w/ }).waitFor()
}

describe('accounts in the playground', { timeout: PATIENCE_MS }, () => {
  it.for(LOOKS)('are named and visible on the sign-in card on $name', async (look) => {
    const { page, problems, close } = await openPage(stack.browser, look)
    await page.goto(stack.tiers.url)
    await page.getByLabel('API key').waitFor()
    await expectUsable(page)
    await keepScreenshot(page, `sign-in-key-${look.name}`)
    await page.getByRole('button', { name: 'E-mail' }).click()
    await expectUsable(page)
    await keepScreenshot(page, `sign-in-email-${look.name}`)
    expect(problems).toEqual([])
    await close()
  })

  it('are created by e-mail, confirmed by its link, and signed out again', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await openSignIn(page)
    await page.getByLabel('E-mail', { exact: true }).fill('new@example.test')
    await page.getByLabel('Password').first().fill(PASSWORD)
    await page.getByRole('button', { name: 'Create an account' }).click()
    await page.getByText('the link there completes the account').waitFor()
    await page.goto(await linkTo('new@example.test'))
    await page.getByText('new@example.test').waitFor()
    // Tokens stay neither in the URL nor in the history.
    expect(page.url()).toBe(`${stack.tiers.url}/#chat`)
    await chat(page)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('button', { name: 'E-mail' }).waitFor()
    await page.reload()
    await page.getByLabel('API key').waitFor()
    expect(problems).toEqual([])
    await close()
  })

  it('open by password, and are kept open by renewing the access token', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await openSignIn(page)
    await page.getByLabel('E-mail', { exact: true }).fill('new@example.test')
    await page.getByLabel('Password').first().fill(PASSWORD)
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.getByText('new@example.test').waitFor()
    // An access token of 61 s is renewed before its last minute.
    await page.waitForTimeout(1500)
    const renewed = page.waitForResponse('**/auth/v1/token?grant_type=refresh_token')
    await chat(page)
    expect((await renewed).status()).toBe(200)
    expect(problems).toEqual([])
    await close()
  })

  it('open by a link without a password', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await openSignIn(page)
    await page.getByLabel('E-mail', { exact: true }).fill('linked@example.test')
    await page.getByRole('button', { name: 'Send me a link' }).click()
    await page.getByText('the link there signs you in').waitFor()
    const link = await linkTo('linked@example.test')
    await page.goto(link)
    await page.getByText('linked@example.test').waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    // A link works once; the second time the page says so.
    await page.goto(link)
    await page.getByText('Email link is invalid or has expired.').waitFor()
    expect(problems).toEqual([])
    await close()
  })

  it('get a new password by a link', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await openSignIn(page)
    await page.getByLabel('E-mail', { exact: true }).fill('new@example.test')
    await page.getByRole('button', { name: 'Forgot the password?' }).click()
    await page.getByText('a link for a new password is on its way').waitFor()
    await page.goto(await linkTo('new@example.test'))
    await page.getByLabel('New password').fill('another password of the tests')
    await page.getByRole('button', { name: 'Set the password' }).click()
    await page.getByText('new@example.test').waitFor()
    expect(problems).toEqual([])
    await close()
  })

  it('stay closed for a wrong password, with a message', async () => {
    const { page, close } = await openPage(stack.browser)
    await openSignIn(page)
    await page.getByLabel('E-mail', { exact: true }).fill('new@example.test')
    await page.getByLabel('Password').first().fill('wrong')
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.getByRole('alert').filter({ hasText: 'Invalid login credentials' }).waitFor()
    await close()
  })

  it('join an organization by a choice on the page, never by the link alone', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    const email = `invited.${Date.now()}@example.test`
    const headers = {
      authorization: `Bearer ${stack.tiers.apiKey}`,
      'content-type': 'application/json',
    }
    const api = `${stack.tiers.url}/v1/organizations`
    const list = await fetch(api, { headers })
    const { data } = (await list.json()) as { data: { id: string; name: string }[] }
    const [organization] = data
    await fetch(`${api}/${organization?.id}/invitations`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ email, role: 'member' }),
    })
    await page.goto(await linkTo(email))
    await page.getByText('You are invited to join').waitFor()
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByText('You have joined.').waitFor()
    await page.reload()
    await page.getByLabel('Your message').waitFor()
    expect(await page.getByText('You are invited to join').isVisible()).toBe(false)
    expect(problems).toEqual([])
    await close()
  })
})
