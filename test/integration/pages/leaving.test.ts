import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'
import { microphones, noteMicrophones } from '#test/support/page-probes.js'

import { type PagesStack, startPagesStack } from './pages-stack.ts'

const STORAGE_KEY = 'millrace.playground'

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack({ withImages: true })
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

async function signIn(page: Page, options: { readonly stays?: boolean } = {}): Promise<void> {
  await page.getByLabel('API key').fill(stack.tiers.apiKey)
  if (options.stays === true) await page.getByLabel('Remember it in this browser').check()
  await page.getByRole('button', { name: 'Use this key' }).click()
  await page.getByRole('tab', { name: 'Chat' }).waitFor()
}

/** Opens the playground and signs in; fails when the page has complained. */
async function withPlayground(use: (page: Page) => Promise<void>): Promise<void> {
  const { page, problems, close } = await openPage(stack.browser)
  try {
    await page.addInitScript(noteMicrophones)
    await page.goto(stack.tiers.url)
    await signIn(page)
    await use(page)
    expect(problems).toEqual([])
  } finally {
    await close()
  }
}

const signOut = (page: Page) => page.getByRole('button', { name: 'Sign out' }).click()
const openTab = (page: Page, name: string) => page.getByRole('tab', { name }).click()
const recordButton = (page: Page) => page.locator('#speech-record')
const liveMicrophones = (page: Page) => page.evaluate(microphones)

describe('leaving the playground', { timeout: PATIENCE_MS }, () => {
  it('keeps unsent text from the next user to sign in', async () => {
    await withPlayground(async (page) => {
      await page.getByLabel('Instructions').fill('private instructions')
      await page.getByLabel('Your message').fill('a private question')
      await page.getByLabel('Your message').press('Enter')
      await page.locator('#chat .stats').filter({ hasText: /\d s/ }).waitFor()
      await page.getByLabel('Your message').fill('a private draft')
      await signOut(page)
      await page.getByLabel('API key').waitFor()
      await signIn(page)
      expect(await page.locator('#chat-log').textContent()).not.toContain('private')
      expect(await page.locator('#curl-text').textContent()).not.toContain('private')
    })
  })

  it('in one tab signs out the other one, too', async () => {
    const { page, close } = await openPage(stack.browser)
    await page.goto(stack.tiers.url)
    await signIn(page, { stays: true })
    const other = await page.context().newPage()
    await other.goto(stack.tiers.url)
    await other.getByRole('tab', { name: 'Chat' }).waitFor()
    await signOut(page)
    await other.getByLabel('API key').waitFor()
    await close()
  })

  it('ends a recording', async () => {
    await withPlayground(async (page) => {
      await openTab(page, 'Speech')
      await recordButton(page).click()
      await page.getByText('Recording, 1 s').waitFor()
      expect(await liveMicrophones(page)).toBe(1)
      await signOut(page)
      await page.getByLabel('API key').waitFor()
      await expect.poll(() => liveMicrophones(page)).toBe(0)
    })
  })

  it('does not follow from a server that has too much to do to renew a sign-in', async () => {
    const { page, close } = await openPage(stack.browser)
    const refusal = { code: 429, error_code: 'over_request_rate_limit', msg: 'Request rate limit' }
    await page.route('**/auth/v1/token*', (route) => route.fulfill({ status: 429, json: refusal }))
    await page.goto(stack.tiers.url)
    const credential = {
      kind: 'user',
      name: 'you@example.test',
      accessToken: 'a.b.c',
      refreshToken: 'r',
      expiresAtMs: 0,
    }
    await page.evaluate(`sessionStorage['${STORAGE_KEY}'] = '${JSON.stringify(credential)}'`)
    await page.reload()
    await page.getByText('Too many requests at the moment.').waitFor()
    expect(await page.evaluate(`sessionStorage['${STORAGE_KEY}']`)).toContain('you@example.test')
    await close()
  })
})

describe('the playground', { timeout: PATIENCE_MS }, () => {
  it('remembers the newer of two keys', async () => {
    const { page, close } = await openPage(stack.browser)
    await page.goto(stack.tiers.url)
    const old = { kind: 'key', key: 'mr-an-old-key' }
    await page.evaluate(`sessionStorage['${STORAGE_KEY}'] = '${JSON.stringify(old)}'`)
    // While the server is away, the old one is kept.
    await page.route(/\/v1\/(models|engines)$/, (route) => route.abort())
    await page.reload()
    await page.getByText('The server cannot be reached.').waitFor()
    await page.unrouteAll()
    await signIn(page, { stays: true })
    await page.reload()
    await page.getByRole('tab', { name: 'Chat' }).waitFor()
    await close()
  })

  it('keeps no microphone on after two clicks in a row', async () => {
    await withPlayground(async (page) => {
      await openTab(page, 'Speech')
      await recordButton(page).dblclick()
      await expect.poll(() => recordButton(page).textContent()).toContain('Record')
      await expect.poll(() => liveMicrophones(page)).toBe(0)
      await recordButton(page).click()
      await page.getByText('Recording, 1 s').waitFor()
      expect(await liveMicrophones(page)).toBe(1)
      await recordButton(page).click()
      await page.getByText('Recorded.').waitFor()
      expect(await liveMicrophones(page)).toBe(0)
    })
  })

  it('draws a new image although an invalid file was chosen for another task', async () => {
    await withPlayground(async (page) => {
      await openTab(page, 'Images')
      await page.getByLabel('What to do').selectOption('edits')
      const file = { name: 'notes.png', mimeType: 'image/png', buffer: Buffer.from('no image') }
      await page.getByLabel('Image', { exact: true }).setInputFiles(file)
      const fault = () => page.locator('#image-file:invalid').count()
      await expect.poll(fault).toBe(1)
      await page.getByLabel('What to do').selectOption('generations')
      await page.getByLabel('Steps').fill('1')
      await page.getByRole('button', { name: 'Draw', exact: true }).click()
      await page.locator('#images .stats').filter({ hasText: '1 image' }).waitFor()
      await page.getByLabel('What to do').selectOption('variations')
      await expect.poll(fault).toBe(1)
    })
  })

  it('detects by itself that a model has been loaded', async () => {
    const { page, close } = await openPage(stack.browser)
    let isLoaded = false
    await page.route('**/v1/engines', async (route) => {
      const answer = await route.fetch()
      const engines = await answer.json()
      for (const engine of engines.data) engine.ready &&= isLoaded
      await route.fulfill({ response: answer, json: engines })
    })
    await page.goto(stack.tiers.url)
    await signIn(page)
    await page.getByText('No worker has this model loaded at the moment').first().waitFor()
    const options = () => page.locator('#chat .model').textContent()
    expect(await options()).toContain('tiny-chat (not loaded)')
    isLoaded = true
    await expect.poll(options).not.toContain('not loaded')
    expect(await page.locator('#chat .none').isVisible()).toBe(false)
    await close()
  })

  it('shows each line of an answer in the direction of its script', async () => {
    await withPlayground(async (page) => {
      const choices = [{ delta: { content: 'שלום!\nHello!' } }]
      const body = `data: ${JSON.stringify({ choices })}\n\ndata: [DONE]\n\n`
      await page.route('**/v1/chat/completions', (route) =>
        route.fulfill({ contentType: 'text/event-stream', body }),
      )
      await page.getByLabel('Your message').fill('Greet me twice.')
      await page.getByLabel('Your message').press('Enter')
      const words = page.locator('.turn.assistant p')
      await words.filter({ hasText: 'Hello!' }).waitFor()
      const answer = "document.querySelector('.turn.assistant p')"
      expect(await page.evaluate(`getComputedStyle(${answer}).unicodeBidi`)).toBe('plaintext')
    })
  })
})
