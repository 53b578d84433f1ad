import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { Browser } from 'playwright-core'
import { inject } from 'vitest'

import { startBrowser } from '#test/support/browser.ts'
import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

/** The admin token of the stack. */
export const ADMIN_TOKEN = 'the-admin-token-of-the-pages'

/** The real processes with the shipped models, and a browser in front of them. */
export interface PagesStack {
  readonly tiers: Tiers
  readonly browser: Browser
  readonly mail: MailCatcher
  readonly redisUrl: string
  readonly keyPrefix: string
  stop(): Promise<void>
}

/** Starts everything; `withImages` adds the tiny image model of the fixtures to the catalogue. */
export async function startPagesStack(
  options: { readonly withImages?: boolean; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<PagesStack> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-pages-'))
  const [database, mail, browser] = await Promise.all([
    createDatabase(),
    startMailCatcher(),
    startBrowser(),
  ])
  const redisUrl = inject('redisUrl')
  const keyPrefix = `test-${randomUUID().slice(0, 8)}`
  const tiers = await startTiers({
    redisUrl,
    keyPrefix,
    folder,
    databaseUrl: database.url,
    env: {
      MILLRACE_ADMIN_TOKEN: ADMIN_TOKEN,
      MILLRACE_CATALOGUE: await writeCatalogue(folder, options.withImages === true),
      AUTH_SMTP_PORT: String(mail.port),
      ...options.env,
    },
  })
  await tiers.startWorker()
  return {
    tiers,
    browser,
    mail,
    redisUrl,
    keyPrefix,
    async stop() {
      await browser.close()
      await tiers.stop()
      await mail.stop()
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** The shipped models but for images, which come from the fixtures where they are wanted. */
async function writeCatalogue(folder: string, withImages: boolean): Promise<string> {
  const root = join(import.meta.dirname, '../../..')
  const { models } = JSON.parse(await readFile(join(root, 'models.json'), 'utf8')) as {
    readonly models: readonly { readonly kind: string; readonly source: string }[]
  }
  const shipped = models
    .filter(({ kind }) => kind !== 'image')
    .map((model) => ({ ...model, source: join(root, model.source) }))
  const image = {
    id: 'toy-diffusion',
    kind: 'image',
    source: join(root, 'test/fixtures/models/stable-diffusion'),
  }
  const path = join(folder, 'catalogue.json')
  await writeFile(path, JSON.stringify({ models: withImages ? [...shipped, image] : shipped }))
  return path
}
