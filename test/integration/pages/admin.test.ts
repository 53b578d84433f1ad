import { Redis } from 'ioredis'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { IncidentLog } from '#api/console/incident-log.ts'
import { createLogger } from '#shared/logger.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { type ServedQueue, writeHeartbeat } from '#shared/queue/liveness.ts'
import { expectUsable, keepScreenshot, LOOKS, openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'
import { countForeignImages } from '#test/support/page-probes.js'

import { enrollAuthenticator, PASSWORD, post, serviceToken, signInByToken } from './console-page.ts'
import { type PagesStack, startPagesStack } from './pages-stack.ts'

const HOSTILE = '<img src=x onerror="document.title=1">'

let stack: PagesStack
let redis: Redis

beforeAll(async () => {
  // Everything is slow here, so that something stands in the list.
  stack = await startPagesStack({ env: { MILLRACE_SLOW_REQUEST: '0s' } })
  redis = new Redis(stack.redisUrl)
}, BROWSER_TIMEOUT_MS)
afterAll(async () => {
  redis?.disconnect()
  await stack?.stop()
})

const signIn = (page: Page) => signInByToken(page, stack.tiers.url)
const send = (path: string, body: object, bearer: string) =>
  post(`${stack.tiers.url}${path}`, body, bearer)
const complete = (model: string) =>
  send('/v1/completions', { model, prompt: 'Once', max_tokens: 5 }, stack.tiers.apiKey)

describe('the administration page', { timeout: PATIENCE_MS }, () => {
  it.for(LOOKS)('shows queues, workers, errors and slow requests on $name', async (look) => {
    const { page, problems, close } = await openPage(stack.browser, look)
    await page.goto(`${stack.tiers.url}/admin/sign-in`)
    await expectUsable(page)
    await keepScreenshot(page, `admin-sign-in-${look.name}`)
    await signIn(page)
    expect((await complete('tiny-chat')).status).toBe(200)
    expect((await complete('no-such-model')).status).toBe(404)
    // Without a reload: the page updates itself.
    const slow = page.getByRole('table', { name: 'Recent slow requests' })
    const request = slow.getByRole('row').filter({ hasText: 'POST /v1/completions' })
    await request.filter({ hasText: 'tiny-chat' }).first().waitFor()
    const cells = await request
      .filter({ hasText: 'tiny-chat' })
      .first()
      .locator('td')
      .allTextContents()
    // Five tokens, and a time that was waited.
    expect(cells[6]).toBe('5')
    expect(cells[4]).toMatch(/^[\d.]+ (ms|s)$/)
    // Neither "works" nor a duration is broken into lines.
    const states = page
      .getByRole('table', { name: 'Services' })
      .locator('td.good, td.number:not(.nothing)')
    const lines = await states
      .locator('span')
      .evaluateAll((spans) => spans.map((span) => span.getClientRects().length))
    expect(new Set(lines)).toEqual(new Set([1]))
    const errors = page.getByRole('table', { name: 'Errors by kind' })
    await errors.getByText('not found').first().waitFor()
    const queues = page.getByRole('table', { name: 'Queues' })
    const ofModel = queues.getByRole('row').filter({ hasText: 'tiny-chat' })
    for (const kind of ['completion', 'training']) {
      expect(await ofModel.filter({ hasText: kind }).textContent()).toContain('1 ready')
    }
    const workers = page.getByRole('table', { name: 'Workers' })
    expect(await workers.getByRole('row').filter({ hasText: 'tiny-embed' }).count()).toBe(1)
    await expectUsable(page)
    await keepScreenshot(page, `admin-${look.name}`)
    expect(problems).toEqual([])
    await close()
  })

  it('writes hostile names as texts, from the server and from its script', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await plantHostileNames()
    await signIn(page)
    await expect.poll(() => page.getByText(HOSTILE).count()).toBeGreaterThanOrEqual(5)
    expect(await page.evaluate(countForeignImages)).toBe(0)
    const waiting = page.getByRole('table', { name: 'Queues' }).locator('tbody')
    await waiting.evaluate((body) => body.replaceChildren())
    // Filled again by the script, so what is there now it has written.
    await waiting.getByText('tiny-chat').first().waitFor()
    await plantHostileNames()
    await expect.poll(() => page.getByText(HOSTILE).count()).toBeGreaterThanOrEqual(5)
    expect(await page.evaluate(countForeignImages)).toBe(0)
    expect(await page.title()).toContain('Millrace')
    expect(problems).toEqual([])
    await close()
  })

  it('admits an administrator by e-mail and password, leads to the jobs, and signs out', async () => {
    const { url } = stack.tiers
    const service = await serviceToken()
    const users = [
      {
        email: 'admin@example.test',
        password: PASSWORD,
        email_confirm: true,
        role: 'service_role',
      },
      { email: 'user@example.test', password: PASSWORD, email_confirm: true },
    ]
    for (const user of users) expect((await send('/admin/users', user, service)).status).toBe(200)
    const { page, close } = await openPage(stack.browser)
    await page.goto(`${url}/admin/queues`)
    const enter = async (email: string) => {
      await page.getByLabel('Email address of an administrator').fill(email)
      await page.getByLabel('Password').fill(PASSWORD)
      await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    }
    await enter('user@example.test')
    await page.getByText('has no role in the console').waitFor()
    await enter('admin@example.test')
    await page.getByText('completion.tiny-chat').first().waitFor()
    await page.goto(`${url}/admin`)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Or the admin token').waitFor()
    expect((await page.goto(`${url}/admin`))?.status()).toBe(401)
    await close()
  })

  it('requires the code of an administrator with an authenticator, and accepts each code once', async () => {
    const service = await serviceToken()
    const email = 'careful@example.test'
    const user = { email, password: PASSWORD, email_confirm: true, role: 'service_role' }
    expect((await send('/admin/users', user, service)).status).toBe(200)
    const code = await enrollAuthenticator(stack.tiers.url, email)
    const { page, close } = await openPage(stack.browser)
    await page.goto(`${stack.tiers.url}/admin`)
    const enter = async (typed: string) => {
      await page.getByLabel('Email address of an administrator').fill(email)
      await page.getByLabel('Password').fill(PASSWORD)
      await page.getByLabel('Code of the second factor').fill(typed)
      await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    }
    for (const wrong of ['', '000000', 'abc']) {
      await enter(wrong)
      await page.getByText('This account has a second factor').waitFor()
    }
    const used = code()
    await enter(used)
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await enter(used)
    await page.getByText('This account has a second factor').waitFor()
    await close()
  })

  it('reports a sign-out elsewhere, and can be paused', async () => {
    const { page, close } = await openPage(stack.browser)
    await signIn(page)
    await page.getByRole('button', { name: 'Pause' }).click()
    await page.getByText('Paused.').waitFor()
    await page.getByRole('button', { name: 'Go on' }).click()
    // An answer to a request from before the pause changes nothing.
    let answerNow = () => {}
    const asked = new Promise<void>((resolve) => {
      void page.route('**/overview.json', async (route) => {
        resolve()
        await new Promise<void>((goOn) => (answerNow = goOn))
        await route.continue()
      })
    })
    await asked
    await page.getByRole('button', { name: 'Pause' }).click()
    const answered = page.waitForResponse('**/overview.json')
    answerNow()
    await (await answered).finished()
    await page.waitForTimeout(500)
    expect(await page.getByText('Paused.').isVisible()).toBe(true)
    await page.unroute('**/overview.json')
    await page.getByRole('button', { name: 'Go on' }).click()
    await page.context().clearCookies()
    await page.getByText('You have been signed out.').waitFor()
    await close()
  })
})

/** A worker and requests whose every name is markup. */
async function plantHostileNames(): Promise<void> {
  const { keyPrefix } = stack
  const queue: ServedQueue = {
    kind: 'completion',
    modelId: HOSTILE,
    isReady: true,
    slots: 4,
    active: 1,
    waiting: 0,
    jobsPerSecond: 0,
    tokensPerSecond: 0,
    cacheUse: 0.25,
  }
  await writeHeartbeat(redis, queueKeys(keyPrefix), {
    workerId: 'hostile',
    version: HOSTILE,
    nodeVersion: 'v24',
    pid: 1,
    hostname: HOSTILE,
    startedAtMs: Date.now(),
    isDraining: false,
    queues: [queue],
  })
  // It says nothing more, but shall stay for a while.
  await redis.pexpire(queueKeys(keyPrefix).worker('hostile'), 60_000)
  const log = new IncidentLog({ redis, prefix: keyPrefix, log: createLogger({ level: 'silent' }) })
  const common = {
    atMs: Date.now(),
    requestId: HOSTILE,
    method: 'POST',
    route: HOSTILE,
    status: 500,
    modelId: HOSTILE,
  }
  log.noteFailed({ ...common, kind: 'internal' })
  log.noteSlow({ ...common, durationMs: 9000 })
  await log.close()
}
