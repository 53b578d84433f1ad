import { SignJWT } from 'jose'
import { TOTP } from 'otpauth'
import type { Page } from 'playwright-core'
import { expect } from 'vitest'

import { ADMIN_TOKEN } from './pages-stack.ts'

/** The password of the users of these tests. */
export const PASSWORD = 'a long password of the tests'

/** Signs in with the admin token; resolves on the overview. */
export async function signInByToken(page: Page, url: string): Promise<void> {
  await page.goto(`${url}/admin/sign-in`)
  await page.getByLabel('Or the admin token').fill(ADMIN_TOKEN)
  await page.getByRole('button', { name: 'Sign in with the token' }).click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  // The heading appears before the rest of the page has arrived.
  await page.waitForLoadState()
}

/** Opens a page of the console, and waits for its rows. */
export async function openConsolePage(page: Page, url: string, name: string): Promise<void> {
  await page.goto(`${url}/admin/console/${name}`)
  await page.getByText('Loading …').first().waitFor({ state: 'detached' })
}

/** The rows that hold a text. */
export const rowOf = (page: Page, text: string) => page.getByRole('row').filter({ hasText: text })

/** Presses a button of a row, and confirms its dialog. */
export async function act(page: Page, row: string, action: string): Promise<void> {
  await rowOf(page, row).getByRole('button', { name: action }).click()
  await page.getByRole('dialog').getByRole('button', { name: action, exact: true }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
}

/** A token with all rights on the user server. */
export function serviceToken(): Promise<string> {
  const secret = new TextEncoder().encode('a secret of the tests that is long enough')
  return new SignJWT({ role: 'service_role' }).setProtectedHeader({ alg: 'HS256' }).sign(secret)
}

/** Sends JSON. */
export function post(url: string, body: object, bearer: string): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
}

/** Gives an account an authenticator, by the user server; the result says its present code. */
export async function enrollAuthenticator(url: string, email: string): Promise<() => string> {
  const read = async <Answer>(path: string, body: object, bearer = ''): Promise<Answer> =>
    (await (await post(`${url}${path}`, body, bearer)).json()) as Answer
  const credentials = { email, password: PASSWORD }
  const { access_token: access } = await read<{ access_token: string }>(
    '/token?grant_type=password',
    credentials,
  )
  const factor = await read<{ id: string; totp: { secret: string } }>(
    '/factors',
    { factor_type: 'totp' },
    access,
  )
  const totp = new TOTP({ secret: factor.totp.secret })
  const challenge = await read<{ id: string }>(`/factors/${factor.id}/challenge`, {}, access)
  const proof = { challenge_id: challenge.id, code: totp.generate() }
  expect((await post(`${url}/factors/${factor.id}/verify`, proof, access)).status).toBe(200)
  return () => totp.generate()
}
