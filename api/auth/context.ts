import type { Browser } from '#api/auth/external/browser-binding.ts'
import type { AccessTokenClaims } from '#api/auth/sessions/access-token.ts'
import type { Parts } from '#api/auth/users/user-parts-store.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

/** The caller of a request: a signed-in user, or an administrator by role. */
export type Caller =
  | {
      readonly kind: 'user'
      readonly user: UserRow
      /** Identities and factors at the time of authentication. */
      readonly parts: Parts
      /** Absent for access tokens that were issued without a session. */
      readonly session: SessionRow | undefined
      readonly claims: AccessTokenClaims
    }
  | { readonly kind: 'admin'; readonly role: string; readonly claims: AccessTokenClaims }

/** The context of a request besides its body. */
export interface AuthRequest {
  readonly ip: string
  /** The network of the client, whose failed credential checks are counted together. */
  readonly network: string
  readonly userAgent: string
  /** Absent for events that no request of this surface caused. */
  readonly requestId?: string
  /** A permitted redirect target; the site when the client names none. */
  readonly redirectTo: string
  /** The audience that the client asks for, or the configured one. */
  readonly audience: string
  /** The base of links in mails. */
  readonly externalUrl: string
  readonly browser: Browser
  /** The authenticated caller; absent on public routes. */
  readonly caller?: Caller
}

/** A request of a signed-in user. */
export interface UserRequest extends AuthRequest {
  readonly caller: Extract<Caller, { kind: 'user' }>
}

/** A request of an administrator. */
export interface AdminRequest extends AuthRequest {
  readonly caller: Extract<Caller, { kind: 'admin' }>
}

/** The answer of a flow. */
export type Answer =
  | {
      readonly kind: 'json'
      readonly status: number
      readonly body: unknown
      readonly headers?: Readonly<Record<string, string>>
    }
  | {
      readonly kind: 'redirect'
      readonly status: 302 | 303
      readonly url: string
      readonly cookie?: string | undefined
    }
  | { readonly kind: 'empty' }

/** 200 with a JSON body. */
export function json(body: unknown, headers?: Readonly<Record<string, string>>): Answer {
  return { kind: 'json', status: 200, body, ...(headers && { headers }) }
}

/** Redirects the browser. */
export function redirect(url: string, status: 302 | 303 = 303, cookie?: string): Answer {
  return { kind: 'redirect', status, url, cookie }
}

/** 204 without a body. */
export const EMPTY: Answer = { kind: 'empty' }
