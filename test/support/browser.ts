import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'

import { type Browser, chromium, type Page } from 'playwright-core'
import { expect } from 'vitest'

import { findChromium } from './chromium.ts'
import { findFaintTexts, overhang } from './page-probes.js'

/** How a page is looked at. */
export interface Look {
  readonly width: number
  readonly height: number
  readonly scheme: 'light' | 'dark'
}

/** A small phone and a desktop, each in one colour scheme: colours do not depend on the width. */
export const LOOKS: readonly (Look & { readonly name: string })[] = [
  { name: 'phone-dark', width: 360, height: 740, scheme: 'dark' },
  { name: 'desktop-light', width: 1280, height: 860, scheme: 'light' },
]

/** A page with everything that it complained about. */
export interface WatchedPage {
  readonly page: Page
  /** Errors of scripts, of the console, and breaches of the content security policy. */
  readonly problems: readonly string[]
  close(): Promise<void>
}

// Git ignores what lies there.
const SCREENSHOTS_FOLDER = join(import.meta.dirname, '../../.data/screenshots')

/** Starts a headless Chromium; a made-up microphone is there and allowed. */
export async function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: await findChromium(),
    args: [
      // Containers run as root, where the sandbox cannot.
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
      '--use-fake-ui-for-media-stream',
      '--use-fake-device-for-media-stream',
    ],
  })
}

/** Opens an empty page in a browser profile of its own. */
export async function openPage(
  browser: Browser,
  { width, height, scheme }: Look = LOOKS[1] as Look,
): Promise<WatchedPage> {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    permissions: ['microphone', 'clipboard-read', 'clipboard-write'],
  })
  const page = await context.newPage()
  // Slow machines are slow; what hangs ends with its test.
  page.setDefaultTimeout(60_000)
  const problems: string[] = []
  page.on('pageerror', (error) => problems.push(`script: ${error.message}`))
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return
    problems.push(`console: ${message.text()} (${message.location().url})`)
  })
  return { page, problems, close: () => context.close() }
}

/** Keeps an image of the whole page for people to look at. */
export async function keepScreenshot(page: Page, name: string): Promise<void> {
  await mkdir(SCREENSHOTS_FOLDER, { recursive: true })
  await page.screenshot({ path: join(SCREENSHOTS_FOLDER, `${name}.png`), fullPage: true })
}

/** Fails unless everybody can use what the page shows right now. */
export async function expectUsable(page: Page): Promise<void> {
  expect(await namelessControls(page)).toEqual([])
  expect(await page.evaluate(findFaintTexts)).toEqual([])
  expect(await page.evaluate(overhang), 'nothing sticks out to the side').toBe(0)
}

const CONTROLS = [
  'button',
  'link',
  'textbox',
  'combobox',
  'checkbox',
  'radio',
  'slider',
  'spinbutton',
  'tab',
  'image',
  'log',
  'table',
]

/** Controls that a screen reader could not name, by the browser's own accessibility tree. */
async function namelessControls(page: Page): Promise<string[]> {
  const session = await page.context().newCDPSession(page)
  try {
    const { nodes } = await session.send('Accessibility.getFullAXTree')
    return nodes
      .filter(({ ignored, role }) => !ignored && CONTROLS.includes(String(role?.value)))
      .filter(({ name }) => String(name?.value ?? '').trim() === '')
      .map(({ role, nodeId }) => `${role?.value} ${nodeId}`)
  } finally {
    await session.detach()
  }
}
