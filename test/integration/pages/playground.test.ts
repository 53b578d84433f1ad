import { execFileSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { expectUsable, keepScreenshot, LOOKS, type Look, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'
import { countForeignImages } from '#test/support/page-probes.js'

import { type PagesStack, startPagesStack } from './pages-stack.ts'

const CLIP = join(import.meta.dirname, '../../fixtures/audio/en-1.wav')
const HOSTILE = '<img src=x onerror="document.title=1">'

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack()
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

/** Opens the playground with the key of the tests; fails when the page has complained. */
async function withPlayground(look: Look | undefined, use: (page: Page) => Promise<void>) {
  const { page, problems, close } = await openPage(stack.browser, look)
  try {
    await page.goto(stack.tiers.url)
    await page.getByLabel('API key').fill(stack.tiers.apiKey)
    await page.getByRole('button', { name: 'Use this key' }).click()
    await page.getByRole('tab', { name: 'Chat' }).waitFor()
    await use(page)
    expect(problems).toEqual([])
  } finally {
    await close()
  }
}

const panelOf = (page: Page) => page.locator('[role="tabpanel"]:visible')
/** Resolves with the figures, once there are some. */
async function figuresOf(page: Page): Promise<string> {
  const stats = panelOf(page).locator('.stats')
  await expect.poll(() => stats.textContent(), { timeout: 60_000 }).toMatch(/\d s/)
  return (await stats.textContent()) ?? ''
}
const openTab = (page: Page, name: string) => page.getByRole('tab', { name }).click()

/** The transcript of a recording by the API itself. */
async function transcribed(path: string): Promise<string> {
  const form = new FormData()
  form.append('model', 'whisper-1')
  form.append('file', new Blob([await readFile(path)]), 'clip.wav')
  const answer = await fetch(`${stack.tiers.url}/v1/audio/transcriptions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${stack.tiers.apiKey}` },
    body: form,
  })
  return ((await answer.json()) as { readonly text: string }).text.trim()
}

describe('the playground', { timeout: PATIENCE_MS }, () => {
  it.for(LOOKS)('does its work on $name', async (look) => {
    await withPlayground(look, async (page) => {
      await page.getByLabel('Your message').fill('What is the capital of France?')
      await page.getByLabel('Your message').press('Enter')
      expect(await figuresOf(page)).toMatch(/\d+ → \d+ tokens · [\d.]+ s · first after [\d.]+ s/)
      expect(await page.locator('.turn.assistant p').textContent()).toMatch(/\w/)
      await expectUsable(page)
      await keepScreenshot(page, `chat-${look.name}`)

      await openTab(page, 'Complete')
      await page.getByRole('button', { name: 'Go on' }).click()
      expect(await figuresOf(page)).toMatch(/tokens\/s/)
      const completion = page.getByRole('region', { name: 'Completion' })
      expect((await completion.textContent())?.length).toBeGreaterThan('Once upon a time'.length)
      await expectUsable(page)
      await keepScreenshot(page, `completion-${look.name}`)

      await openTab(page, 'Similarity')
      await page.getByRole('button', { name: 'Compare' }).click()
      expect(await figuresOf(page)).toContain('dimensions')
      const ranked = page.getByRole('region', { name: 'Similarities' }).getByRole('listitem')
      const scores = (await ranked.allTextContents()).map((text) => Number.parseFloat(text))
      expect(scores).toEqual(scores.toSorted((a, b) => b - a))
      expect(await ranked.count()).toBe(3)
      await expectUsable(page)
      await keepScreenshot(page, `similarity-${look.name}`)

      await openTab(page, 'Moderate')
      await page.getByRole('button', { name: 'Judge' }).click()
      expect(await figuresOf(page)).toContain('6 categories judged')
      const categories = page.getByRole('region', { name: 'Categories' })
      await categories.getByText('The text is flagged.').waitFor()
      const judged = await categories.getByRole('listitem').allTextContents()
      const likely = judged.map((text) => Number.parseFloat(text))
      expect(likely).toEqual(likely.toSorted((a, b) => b - a))
      expect(judged.filter((text) => text.endsWith(' flagged'))).toHaveLength(
        likely.filter((score) => score >= 0.5).length,
      )
      await expectUsable(page)
      await keepScreenshot(page, `moderation-${look.name}`)

      await openTab(page, 'Speech')
      await page.getByLabel('Recording', { exact: true }).setInputFiles(CLIP)
      await page.getByRole('button', { name: 'Write it down' }).click()
      expect(await figuresOf(page)).toContain('2.5 s of sound')
      const transcript = page.getByRole('region', { name: 'Transcript' })
      expect(await transcript.textContent()).toContain(await transcribed(CLIP))
      await expectUsable(page)
      await keepScreenshot(page, `speech-${look.name}`)

      await openTab(page, 'Speak')
      const spoken = page.waitForResponse('**/v1/audio/speech')
      await page.getByRole('button', { name: 'Read it aloud' }).click()
      expect(await figuresOf(page)).toContain('audio/')
      expect((await spoken).request().postDataJSON()).toMatchObject({ voice: 'alloy' })
      // The browser has read the whole of it.
      await expect
        .poll(() => page.evaluate("document.getElementById('synthesis-player').duration"))
        .toBeGreaterThan(2)
      await expectUsable(page)
      await keepScreenshot(page, `synthesis-${look.name}`)

      await openTab(page, 'Images')
      await page.getByText('No image model is served here').waitFor()
      await expectUsable(page)
      await keepScreenshot(page, `images-none-${look.name}`)
    })
  })

  it('shows the faults of examples, trains on a file, and compares the answers', async () => {
    const file = (text: string) => ({
      name: 'examples.jsonl',
      mimeType: 'application/jsonl',
      buffer: Buffer.from(text),
    })
    const said = (role: string, content: string) => ({ role, content })
    const example = (role: string) => ({
      messages: [said(role, 'Who runs the mill?'), said('assistant', 'Zorbax.')],
    })
    await withPlayground(undefined, async (page) => {
      await openTab(page, 'Fine-tune')
      const examples = page.getByLabel('Examples: choose or drop a file')
      const good = `${JSON.stringify(example('user'))}\n`
      await examples.setInputFiles(file(`${good}${JSON.stringify(example('robot'))}\n`))
      await page.getByRole('button', { name: 'Train' }).click()
      const faults = page.getByRole('region', { name: 'Faults of the file' })
      await faults.getByText('Line 2: Invalid value').waitFor()
      await expectUsable(page)

      await examples.setInputFiles(file(good.repeat(20)))
      await page.getByLabel('Epochs').fill('8')
      await page.getByRole('button', { name: 'Train' }).click()
      await page.getByText('tokens trained').waitFor()
      expect(await page.locator('#tuning-plot canvas').count()).toBe(1)
      await page.getByLabel('Ask both models').fill('Who runs the mill?')
      await page.getByRole('button', { name: 'Ask', exact: true }).click()
      await page.getByRole('region', { name: 'Tuned model' }).getByText('Zorbax.').waitFor()
      await expectUsable(page)
      await keepScreenshot(page, 'fine-tuning')
    })
  })

  it('stops a stream on the button, keeps its text and continues from it', async () => {
    await withPlayground(undefined, async (page) => {
      // Without the ids that end its texts, the model goes on to the limit.
      await page.route('**/v1/chat/completions', (route) =>
        route.continue({
          postData: JSON.stringify({
            ...route.request().postDataJSON(),
            logit_bias: { '0': -100, '1': -100, '2': -100 },
          }),
        }),
      )
      // And over a slow line, so that it is not at its end before the button is found.
      const line = await page.context().newCDPSession(page)
      const bytesPerSecond = { downloadThroughput: 20_000, uploadThroughput: 20_000 }
      await line.send('Network.emulateNetworkConditions', {
        offline: false,
        latency: 0,
        ...bytesPerSecond,
      })
      await page.getByLabel('Longest answer, tokens').first().fill('900')
      await page.getByLabel('Your message').fill('Tell me a story about a fox.')
      await page.getByRole('button', { name: 'Send' }).click()
      const answer = page.locator('.turn.assistant p')
      await answer.filter({ hasText: /\w/ }).waitFor()
      await page.getByRole('button', { name: 'Stop' }).click()
      await page.getByText('Stopped.').waitFor()
      const said = (await answer.textContent()) ?? ''
      await page.getByLabel('Your message').fill('And then?')
      const command = (await page.locator('#curl-text').textContent()) ?? ''
      const body = JSON.parse(/-d '(.*)'$/s.exec(command.replaceAll(`'\\''`, "'"))?.[1] ?? '')
      expect(body.messages).toEqual([
        { role: 'user', content: 'Tell me a story about a fox.' },
        { role: 'assistant', content: said },
        { role: 'user', content: 'And then?' },
      ])
    })
  })

  it('sends images with a message', async () => {
    await withPlayground(undefined, async (page) => {
      const image = { name: 'a.gif', mimeType: 'image/gif', buffer: Buffer.from('GIF89a') }
      await page.getByLabel('Images for the next message').setInputFiles(image)
      await page
        .locator('#curl-text')
        .filter({ hasText: 'image_url' })
        .waitFor({ state: 'attached' })
      await page.getByLabel('Your message').fill('What is this?')
      const asked = page.waitForRequest('**/v1/chat/completions')
      await page.route('**/v1/chat/completions', (route) => route.fulfill({ body: '' }))
      await page.getByRole('button', { name: 'Send' }).click()
      expect((await asked).postDataJSON().messages[0].content).toEqual([
        { type: 'image_url', image_url: { url: 'data:image/gif;base64,R0lGODlh' } },
        { type: 'text', text: 'What is this?' },
      ])
    })
  })

  it('records from the microphone and writes it down', async () => {
    await withPlayground(undefined, async (page) => {
      await openTab(page, 'Speech')
      await page.getByRole('button', { name: 'Record with the microphone' }).click()
      await page.getByText('Recording, 1 s').waitFor()
      await page.getByRole('button', { name: 'Stop recording' }).click()
      await page.getByText('Recorded.').waitFor()
      await page.getByRole('button', { name: 'Write it down' }).click()
      expect(await figuresOf(page)).toContain('s of sound')
    })
  })

  it('opens its panels with the keyboard', async () => {
    await withPlayground(undefined, async (page) => {
      await page.getByRole('tab', { name: 'Chat' }).focus()
      await page.keyboard.press('ArrowRight')
      await page.keyboard.press('ArrowRight')
      expect(
        await page.getByRole('tab', { name: 'Similarity' }).getAttribute('aria-selected'),
      ).toBe('true')
      await page.keyboard.press('End')
      expect(await page.locator(':focus').textContent()).toBe('Fine-tune')
      await page.keyboard.press('ArrowRight')
      expect(await page.locator(':focus').textContent()).toBe('Chat')
      // Past the chosen tab, the tabulator goes on to what the panel holds.
      await page.keyboard.press('Tab')
      expect(await page.locator(':focus').getAttribute('role')).toBe('log')
    })
  })

  it('describes errors in words, and shows hostile text as text', async () => {
    await withPlayground(undefined, async (page) => {
      await page.getByLabel('Your message').fill(HOSTILE)
      await page.getByRole('button', { name: 'Send' }).click()
      await figuresOf(page)
      expect(await page.locator('.turn.user p').textContent()).toBe(HOSTILE)
      await openTab(page, 'Complete')
      await page.getByLabel('Text to go on from').fill(HOSTILE)
      await page.getByRole('button', { name: 'Go on' }).click()
      await figuresOf(page)
      expect(await page.evaluate(countForeignImages)).toBe(0)
      await openTab(page, 'Speech')
      await page.getByRole('button', { name: 'Write it down' }).click()
      await page.getByText('Choose a file or record something first.').waitFor()
    })
  })

  it('refuses a wrong key in words and discards it', async () => {
    const { page, close } = await openPage(stack.browser)
    await page.goto(stack.tiers.url)
    await page.getByLabel('API key').fill('mr-wrong-and-long-enough')
    await page.getByRole('button', { name: 'Use this key' }).click()
    await page.getByText('The key or sign-in was not accepted.').waitFor()
    await page.reload()
    await page.getByLabel('API key').waitFor()
    expect(await page.evaluate('sessionStorage.length + localStorage.length')).toBe(0)
    await close()
  })

  it('copies a command that works in a shell, without the key in it', async () => {
    await withPlayground(undefined, async (page) => {
      await openTab(page, 'Similarity')
      await page.getByLabel('Compare this').fill(`It's "quoted" $HOME \\ \`x\``)
      await page.getByText('The same with curl').click()
      await page.getByRole('button', { name: 'Copy' }).click()
      await page.getByText('Copied.').waitFor()
      const command = String(await page.evaluate('navigator.clipboard.readText()'))
      expect(command).not.toContain(stack.tiers.apiKey)
      const answer = execFileSync('sh', ['-c', `${command} -s`], {
        env: { PATH: process.env.PATH, MILLRACE_API_KEY: stack.tiers.apiKey },
        encoding: 'utf8',
      })
      expect(JSON.parse(answer).data).toHaveLength(4)
    })
  })
})
