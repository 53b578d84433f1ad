import type { Page } from 'playwright-core'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { expectUsable, keepScreenshot, LOOKS, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { type PagesStack, startPagesStack } from './pages-stack.ts'

let stack: PagesStack

beforeAll(async () => {
  stack = await startPagesStack({ withImages: true })
}, BROWSER_TIMEOUT_MS)
afterAll(() => stack?.stop())

describe('images in the playground', { timeout: PATIENCE_MS }, () => {
  it.for(LOOKS)('are generated, masked, redrawn and varied on $name', async (look) => {
    const { page, problems, close } = await openPage(stack.browser, look)
    await page.addInitScript(KEEP_MASK)
    await page.goto(`${stack.tiers.url}/#images`)
    await page.getByLabel('API key').fill(stack.tiers.apiKey)
    await page.getByRole('button', { name: 'Use this key' }).click()
    const draw = page.getByRole('button', { name: 'Draw', exact: true })
    const gallery = page.getByRole('region', { name: 'Images' })
    const stats = page.locator('#images .stats')
    await page.getByLabel('How many').fill('2')
    await page.getByLabel('Steps').fill('2')
    await page.locator('#images').getByLabel('Seed').fill('7')
    await draw.click()
    await expect.poll(() => stats.textContent(), { timeout: 60_000 }).toMatch(/2 images · [\d.]+ s/)
    expect(await gallery.getByRole('img', { name: 'A red circle' }).count()).toBe(2)
    await keepScreenshot(page, `images-${look.name}`)

    await gallery.getByRole('button', { name: 'Redraw a part' }).first().click()
    await draw.click()
    await page.getByText('Paint over the part that should be redrawn first.').waitFor()
    const easel = page.getByRole('img', { name: 'Image with the part to redraw' })
    await easel.focus()
    for (const key of ['ArrowRight', 'ArrowDown', 'Space']) await page.keyboard.press(key)
    const box = await easel.boundingBox()
    if (box === null) throw new Error('the easel cannot be seen')
    await page.mouse.move(box.x + box.width * 0.2, box.y + box.height * 0.2)
    await page.mouse.down()
    await page.mouse.move(box.x + box.width * 0.8, box.y + box.height * 0.3, { steps: 5 })
    await page.mouse.up()
    await expectUsable(page)
    await keepScreenshot(page, `mask-${look.name}`)
    await page.getByLabel('How many').fill('1')
    await draw.click()
    await expect.poll(() => stats.textContent(), { timeout: 60_000 }).toMatch(/1 image · [\d.]+ s/)
    const mask = await sentMask(page)
    // Painted by mouse and by keyboard, and whole elsewhere.
    expect(mask.alphaAt(0.5, 0.25)).toBe(0)
    expect(mask.alphaAt(0.53, 0.53)).toBe(0)
    expect(mask.alphaAt(0.1, 0.9)).toBe(255)
    expect(mask.width).toBe(256)

    await page.getByLabel('What to do').selectOption('variations')
    await draw.click()
    await gallery.getByRole('img', { name: 'Variation 1' }).waitFor()
    expect(await page.locator('#curl-text').textContent()).toContain(`-F 'image=@"image.png"'`)
    expect(problems).toEqual([])
    await close()
  })
})

// The protocol of the browser omits files from its description of a request.
const KEEP_MASK = `
  const { append } = FormData.prototype
  FormData.prototype.append = function (name, ...value) {
    if (name === 'mask') globalThis.sentMask = value[0]
    return append.call(this, name, ...value)
  }`

/** The mask as it was sent. */
async function sentMask(page: Page) {
  const bytes = await page.evaluate<number[]>(
    'sentMask.arrayBuffer().then((buffer) => [...new Uint8Array(buffer)])',
  )
  const { data, info } = await sharp(Buffer.from(bytes))
    .ensureAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true })
  return {
    width: info.width,
    alphaAt: (x: number, y: number) =>
      data[(Math.floor(y * info.height) * info.width + Math.floor(x * info.width)) * 4 + 3],
  }
}
