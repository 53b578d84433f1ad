import { createServer, type IncomingMessage, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openPage } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { ADMIN_TOKEN, type PagesStack, startPagesStack } from './pages-stack.ts'

const PATH = '/millrace'

let stack: PagesStack
let proxy: Server
let address: string

/**
 * Serves the tiers below a path, as `proxy_pass` and `proxy_cookie_path` of nginx do; the rest is
 * others'.
 */
function startProxy(target: URL): Server {
  return createServer((incoming, answer) => {
    const { method, url = '', headers } = incoming
    if (!url.startsWith(`${PATH}/`)) {
      answer.writeHead(404).end('another service')
      return
    }
    const { hostname, port } = target
    const path = url.slice(PATH.length)
    const forward = request({ hostname, port, method, path, headers }, (response) => {
      answer.writeHead(response.statusCode ?? 502, withCookiesOf(response))
      response.pipe(answer)
    })
    incoming.pipe(forward)
  })
}

function withCookiesOf({ headers }: IncomingMessage) {
  const cookies = headers['set-cookie']?.map((text) => text.replace('Path=/', `Path=${PATH}/`))
  return { ...headers, ...(cookies !== undefined && { 'set-cookie': cookies }) }
}

beforeAll(async () => {
  stack = await startPagesStack()
  proxy = startProxy(new URL(stack.tiers.url))
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${PATH}`
}, BROWSER_TIMEOUT_MS)
afterAll(async () => {
  await stack?.stop()
  proxy?.closeAllConnections()
  proxy?.close()
})

describe('below a path of a proxy', { timeout: PATIENCE_MS }, () => {
  it('the playground asks, and shows the command that asks there too', async () => {
    const { page, problems, close } = await openPage(stack.browser)
    await page.goto(`${address}/playground/`)
    await page.getByLabel('API key').fill(stack.tiers.apiKey)
    await page.getByRole('button', { name: 'Use this key' }).click()
    await page.getByLabel('Your message').fill('What is the capital of France?')
    await page.getByRole('button', { name: 'Send' }).click()
    await page
      .locator('#chat .stats')
      .getByText(/\d tokens/)
      .waitFor()
    expect(await page.locator('#curl-text').textContent()).toContain(`${address}/v1/chat`)
    await page.getByRole('link', { name: 'API', exact: true }).click()
    await page.locator('[data-tag="Engines"]').first().click()
    await page.locator('.opblock:has([data-path="/v1/engines"])').first().waitFor()
    expect(page.url()).toBe(`${address}/docs#/Engines`)
    expect(problems).toEqual([])
    await close()
  })

  it('the administration signs in, shows the jobs and signs out', async () => {
    const { page, close } = await openPage(stack.browser)
    await page.goto(`${address}/admin/queues/`)
    await page.getByLabel('Or the admin token').fill(ADMIN_TOKEN)
    await page.getByRole('button', { name: 'Sign in with the token' }).click()
    await page.getByText('completion.tiny-chat').first().waitFor()
    expect(page.url()).toMatch(`${address}/admin/queues`)
    await page.goto(`${address}/admin`)
    const refreshed = page.waitForResponse(`${address}/admin/overview.json`)
    expect((await refreshed).status()).toBe(200)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Or the admin token').waitFor()
    expect(page.url()).toBe(`${address}/admin/sign-in`)
    await page.getByRole('link', { name: 'Millrace' }).click()
    await page.getByLabel('Or the admin token').waitFor()
    expect(page.url()).toBe(`${address}/admin`)
    await close()
  })
})
