import type { CallResult, TestServer } from './server.ts'

export const PASSWORD = 'correct horse'

/** The answer to a sign-in. */
export interface SignedIn {
  readonly access_token: string
  readonly refresh_token: string
  readonly expires_at: number
  readonly user: { readonly id: string; readonly email: string } & Record<string, unknown>
}

let people = 0

/** An address without an earlier use in this run. */
export function newEmail(name = 'user'): string {
  people += 1
  return `${name}${people}.${Date.now()}@example.com`
}

/** A confirmed user with a password, made by an administrator. */
export async function createUser(
  server: TestServer,
  fields: Record<string, unknown> = {},
): Promise<{ id: string; email: string }> {
  const email = newEmail()
  const { status, body } = await server.call({
    method: 'POST',
    path: '/admin/users',
    bearer: await server.serviceToken(),
    body: { email, password: PASSWORD, email_confirm: true, ...fields },
  })
  if (status !== 200) throw new Error(`the user was not created: ${JSON.stringify(body)}`)
  return { id: body.id, email: body.email }
}

/** Signs in with the usual password. */
export async function signIn(server: TestServer, email: string): Promise<SignedIn> {
  const { status, body } = await server.call({
    method: 'POST',
    path: '/token?grant_type=password',
    body: { email, password: PASSWORD },
  })
  if (status !== 200) throw new Error(`the sign-in failed: ${JSON.stringify(body)}`)
  return body
}

/** A user who is signed in. */
export async function signedInUser(server: TestServer): Promise<SignedIn> {
  return signIn(server, (await createUser(server)).email)
}

/** Presents a refresh token. */
export function refresh(server: TestServer, refreshToken: string): Promise<CallResult> {
  return server.call({
    method: 'POST',
    path: '/token?grant_type=refresh_token',
    body: { refresh_token: refreshToken },
  })
}
