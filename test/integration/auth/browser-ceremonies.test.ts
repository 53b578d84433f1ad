import { readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

import type { AuthClient } from '@supabase/auth-js'
import type { InjectOptions } from 'fastify'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'

import { openPage, startBrowser } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS, PATIENCE_MS } from '#test/support/chromium.ts'

import { createUser, PASSWORD } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

// The client of the pages below: the newest auth-js, as it is published.
declare const client: InstanceType<typeof AuthClient>

const MODULES = new URL('./', import.meta.resolve('@supabase/auth-js/dist/module/index.js'))
const TSLIB = new URL('../tslib.es6.js', import.meta.resolve('tslib'))
const PAGE = `<!doctype html><title>site</title>
<script type="importmap">{ "imports": { "tslib": "/modules/tslib.js" } }</script>
<script type="module">
  import { AuthClient } from '/modules/index.js'
  globalThis.client = new AuthClient({
    url: location.origin + '/auth/v1', storageKey: 'site', experimental: { passkey: true },
  })
</script>`

let site: Server
let server: TestServer
let browser: Browser
let page: Page

beforeAll(async () => {
  site = createServer((request, response) => void serve(request, response))
  await new Promise<void>((resolve) => site.listen(0, 'localhost', resolve))
  const origin = `http://localhost:${(site.address() as AddressInfo).port}`
  server = await startServer({
    env: {
      AUTH_SITE_URL: origin,
      AUTH_PASSKEY_ENABLED: 'true',
      AUTH_MFA_WEB_AUTHN_ENROLL_ENABLED: 'true',
      AUTH_MFA_WEB_AUTHN_VERIFY_ENABLED: 'true',
    },
  })
  browser = await startBrowser()
  const watched = await openPage(browser)
  page = watched.page
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('WebAuthn.enable')
  await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'usb',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
    },
  })
  await page.goto(origin)
  await page.waitForFunction(() => 'client' in globalThis)
}, BROWSER_TIMEOUT_MS)

afterAll(async () => {
  await browser?.close()
  await server?.close()
  site?.close()
})

// One origin: the page, its modules and the user server.
async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url ?? '/'
  if (path.startsWith('/auth/v1/')) {
    const answer = await server.app.inject({
      method: request.method as NonNullable<InjectOptions['method']>,
      url: path,
      headers: request.headers,
      payload: await buffer(request),
    })
    response.writeHead(answer.statusCode, answer.headers as Record<string, string>)
    response.end(answer.rawPayload)
    return
  }
  if (!path.startsWith('/modules/')) {
    response.writeHead(200, { 'content-type': 'text/html' }).end(PAGE)
    return
  }
  const name = path.slice('/modules/'.length)
  const module = new URL(name.endsWith('.js') ? name : `${name}.js`, MODULES)
  const file = name === 'tslib.js' ? TSLIB : module
  response.writeHead(200, { 'content-type': 'text/javascript' })
  response.end(await readFile(fileURLToPath(file)))
}

async function signIn(): Promise<string> {
  const { id, email } = await createUser(server)
  await page.evaluate(
    async (credentials) => {
      await client.signOut({ scope: 'local' })
      const { error } = await client.signInWithPassword(credentials)
      if (error) throw error
    },
    { email, password: PASSWORD },
  )
  return id
}

it('registers a passkey in a browser and signs in with it', { timeout: PATIENCE_MS }, async () => {
  const userId = await signIn()
  const result = await page.evaluate(async () => {
    const registered = await client.registerPasskey()
    const listed = await client.passkey.list()
    await client.signOut({ scope: 'local' })
    const session = await client.signInWithPasskey()
    return {
      errors: [registered.error, listed.error, session.error].map((error) => error?.message),
      isListed: listed.data?.[0]?.id === registered.data?.id,
      userId: session.data?.user?.id,
    }
  })
  expect(result).toEqual({ errors: [undefined, undefined, undefined], isListed: true, userId })
})

it('enrols a WebAuthn factor in a browser and proves it', { timeout: PATIENCE_MS }, async () => {
  await signIn()
  const result = await page.evaluate(async () => {
    const registered = await client.mfa.webauthn.register({ friendlyName: 'laptop' })
    const factors = await client.mfa.listFactors()
    const factorId = factors.data?.webauthn[0]?.id ?? ''
    const proven = await client.mfa.webauthn.authenticate({ factorId })
    const level = await client.mfa.getAuthenticatorAssuranceLevel()
    return {
      errors: [registered.error, factors.error, proven.error].map((error) => error?.message),
      level: level.data?.currentLevel,
      methods: level.data?.currentAuthenticationMethods.map((entry) =>
        typeof entry === 'string' ? entry : entry.method,
      ),
    }
  })
  expect(result).toEqual({
    errors: [undefined, undefined, undefined],
    level: 'aal2',
    methods: ['mfa/webauthn', 'password'],
  })
})
