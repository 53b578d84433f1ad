import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'

let tiers: Tiers
let cleanUp: () => Promise<void>

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-root-'))
  const database = await createDatabase()
  tiers = await startTiers({
    folder,
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    keyPrefix: `test-${randomUUID().slice(0, 8)}`,
  })
  cleanUp = async () => {
    await tiers.stop()
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
})
afterAll(() => cleanUp?.())

const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(`${tiers.url}${path}`, { method, headers, redirect: 'manual' })

/** Addresses of scripts, styles and images in the page. */
async function assetPaths(): Promise<string[]> {
  const page = await (await get('/', { accept: BROWSER })).text()
  return [...page.matchAll(/(?:src|href)="(playground\/[^"]+)"/g)].map(([, path]) => `/${path}`)
}

describe('the root address', () => {
  it('is a page to browsers and a list of addresses to programs', async () => {
    const page = await get('/', { accept: BROWSER })
    expect(page.status).toBe(200)
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(page.headers.get('vary')).toContain('accept')
    expect(await page.text()).toContain('<title>Millrace playground</title>')
    for (const accept of ['application/json', '*/*', 'text/html;q=0, application/json']) {
      const answer = await get('/', { accept })
      expect(answer.headers.get('content-type')).toContain('application/json')
      expect(await answer.json()).toMatchObject({
        api: '/v1',
        users: '/auth/v1',
        documentation: '/docs',
      })
    }
    expect((await get('/', { accept: BROWSER }, 'HEAD')).status).toBe(200)
  })

  it('is the target of its other names, with or without a slash at the end', async () => {
    for (const [path, status, location] of [
      ['/playground', 308, './'],
      ['/playground/', 308, '../'],
      ['/docs?ref=mail', 302, './docs'],
      ['/docs/?ref=mail', 302, '../docs'],
      ['/admin', 401, null],
      ['/admin/', 401, null],
      ['/admin/queues/', 401, null],
      ['/admin/sign-in/', 200, null],
      ['/docs/', 200, null],
    ] as const) {
      const answer = await get(path, { accept: BROWSER })
      expect([answer.status, answer.headers.get('location')], path).toEqual([status, location])
      if (location === null) {
        const page = await answer.text()
        const [, style = ''] = /<link rel="stylesheet"[^>]* href="([^"]+)"/.exec(page) ?? []
        const address = new URL(style, `${tiers.url}${path}`)
        expect((await get(address.pathname)).status, `${path} ${style}`).toBe(200)
      }
    }
  })

  it('allows nothing inline, nothing foreign and no frames', async () => {
    for (const path of ['/', '/admin/sign-in', (await assetPaths())[0] as string]) {
      const policy = (await get(path, { accept: BROWSER })).headers.get('content-security-policy')
      expect(policy, path).toContain("default-src 'none'; script-src 'self'; style-src 'self';")
      expect(policy, path).toContain("frame-ancestors 'none'")
      expect(policy, path).not.toMatch(/unsafe|https?:|\*/)
    }
    const page = await (await get('/', { accept: BROWSER })).text()
    expect(page).not.toMatch(/(src|href)="(https?:)?\/\//)
    expect(page).not.toMatch(/ style="| on\w+="|<script(?![^>]*src=)/)
  })

  it('serves its files with their types, cached forever under their version and never as another', async () => {
    const paths = await assetPaths()
    expect(paths.length).toBeGreaterThanOrEqual(4)
    for (const path of paths) {
      const file = await get(path)
      expect(file.status, path).toBe(200)
      expect(file.headers.get('content-type')).toMatch(
        /^(text\/javascript|text\/css|image\/svg\+xml)/,
      )
      expect(file.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
      expect(file.headers.get('x-content-type-options')).toBe('nosniff')
      const etag = file.headers.get('etag') ?? ''
      expect((await get(path, { 'if-none-match': etag })).status).toBe(304)
      expect((await get(path, { 'if-none-match': '"other"' })).status).toBe(200)
      const old = await get(path.replace(/playground\/[0-9a-f]+/, 'playground/0000'))
      expect(old.headers.get('cache-control')).toBe('no-cache')
    }
    const page = await get('/', { accept: BROWSER })
    expect(page.headers.get('cache-control')).toBe('no-cache')
    const etag = page.headers.get('etag') ?? ''
    expect((await get('/', { accept: BROWSER, 'if-none-match': `W/${etag}` })).status).toBe(304)
  })

  it.for(['index.html', '..%2fplugin.ts', '%2e%2e%2findex.html', 'main.js%00', 'constructor'])(
    'has no file %s',
    async (name) => {
      expect((await get(`/playground/x/${name}`)).status).toBe(404)
    },
  )

  it.for([
    ['GET', '/health', 200],
    ['GET', '/settings', 200],
    ['GET', '/.well-known/jwks.json', 200],
    ['GET', '/user', 401],
    ['POST', '/token?grant_type=password', 400],
    ['POST', '/signup', 400],
    ['POST', '/logout', 401],
    ['GET', '/authorize', 400],
    ['GET', '/admin/users', 401],
    ['GET', '/admin/audit', 401],
    ['POST', '/admin/generate_link', 400],
  ] as const)(
    'leaves %s %s to the user server (%i), to browsers too',
    async ([method, path, status]) => {
      for (const accept of [BROWSER, 'application/json']) {
        const headers = { accept, ...(method === 'POST' && { 'content-type': 'application/json' }) }
        const [atRoot, below] = await Promise.all(
          ['', '/auth/v1'].map((prefix) => get(`${prefix}${path}`, headers, method)),
        )
        expect(atRoot?.status).toBe(status)
        expect(below?.status).toBe(status)
        expect(atRoot?.headers.get('content-type')).toContain('application/json')
        expect(atRoot?.headers.get('content-security-policy')).toBeNull()
      }
    },
  )
})
