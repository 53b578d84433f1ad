import type { FastifyRequest } from 'fastify'

import { record } from '#api/auth/audit/record.ts'
import type { Answer, AuthRequest } from '#api/auth/context.ts'
import { acceptTotpStep, hasVerifiedFactor, listFactors } from '#api/auth/factors/factors.ts'
import { findTotpStep } from '#api/auth/factors/totp.ts'
import { describeRequest } from '#api/auth/guards.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions, findSession } from '#api/auth/sessions/sessions.ts'
import { token } from '#api/auth/sign-in/token.ts'
import { findUserById, isBanned } from '#api/auth/users/user-store.ts'
import { type Administrator, type ConsoleRole, findConsoleRole } from '#api/console/access.ts'
import type { RecordAction } from '#api/console/api.ts'
import type { ConsoleGuard } from '#api/console/guard.ts'
import { digestOf } from '#api/console/sessions.ts'
import type { CheckPassword, PasswordVerdict } from '#api/console/sign-in.ts'
import { normalizeError } from '#api/http/normalize-error.ts'
import type { FactorRow, UserRow } from '#shared/db/schema/auth.ts'

/** The administrators of the user server, for the console. */
export interface Administrators {
  readonly checkPassword: CheckPassword
  readonly roleNow: ConsoleGuard['roleNow']
  readonly endSession: ConsoleGuard['endSession']
  /** Writes an action of the console to the audit log, under the name of its administrator. */
  readonly audit: RecordAction
}

/** Signs in by the rules of the user server: confirmation, bans, limits and audit log. */
export function administratorsOf(services: AuthServices): Administrators {
  const { adminRoles } = services.config.jwt
  const roleOf = (user: UserRow): ConsoleRole | undefined => {
    if (isBanned(user, services.store.now())) return undefined
    return adminRoles.includes(user.role)
      ? 'administrator'
      : findConsoleRole(user.appMetadata.console_role)
  }
  return {
    audit: (request, administrator, entry) => auditAction(services, request, administrator, entry),
    async roleNow({ userId, sessionId, passwordDigest, isProven }) {
      const user = await findUserById(services.store, userId)
      if (user === undefined || passwordDigestOf(user) !== passwordDigest) return undefined
      // A session of the console ends with its session of the user server.
      if (sessionId === undefined) return undefined
      if ((await findSession(services.store, sessionId)) === undefined) return undefined
      // A factor that was enrolled after the sign-in has to be proven by a new one.
      if (isProven !== true && (await hasVerifiedFactor(services.store, userId))) return undefined
      return roleOf(user)
    },
    async checkPassword(credentials, request) {
      const asked = describeRequest(services, request, undefined)
      const signedIn = await signIn(services, credentials, asked)
      if (signedIn.kind !== 'user') return signedIn
      const { user, sessionId } = signedIn
      const proof =
        roleOf(user) === undefined
          ? refused(403, 'This account has no role in the console.')
          : await judgeFactors(services, asked, { user, code: credentials.code })
      if ('kind' in proof) {
        await endSession(services, { userId: user.id, sessionId })
        return proof
      }
      const passwordDigest = passwordDigestOf(user)
      return {
        kind: 'administrator',
        userId: user.id,
        sessionId,
        passwordDigest,
        ...proof,
        name: credentials.email,
      }
    },
    endSession: (session) => endSession(services, session),
  }
}

async function auditAction(
  services: AuthServices,
  request: FastifyRequest,
  administrator: Administrator,
  entry: Parameters<RecordAction>[2],
): Promise<void> {
  const { userId, name } = administrator
  const user = userId === undefined ? undefined : await findUserById(services.store, userId)
  await record(services, services.store, {
    request: describeRequest(services, request, undefined),
    actor: user === undefined ? { kind: 'admin', role: name } : { kind: 'user', user },
    action: 'console_action',
    traits: { ...entry },
  })
}

// Redis stores nothing that allows a password to be tested.
function passwordDigestOf({ id, passwordHash }: UserRow): string {
  return digestOf(`${id}:${passwordHash ?? ''}`)
}

const SECOND_FACTOR =
  'This account has a second factor: enter the present code of its authenticator, or use the admin token.'

const CHANGED = 'This account has changed in the meantime. Please try again.'

type Refusal = Exclude<PasswordVerdict, { kind: 'administrator' }>

function refused(status: 401 | 403, reason: string): Refusal {
  return { kind: 'refused', status, reason }
}

async function signIn(
  services: AuthServices,
  credentials: { readonly email: string; readonly password: string },
  request: AuthRequest,
): Promise<
  Refusal | { readonly kind: 'user'; readonly user: UserRow; readonly sessionId: string }
> {
  let answer: Answer
  try {
    answer = await token(services, request, credentials, { grant_type: 'password' })
  } catch (thrown) {
    return refusalOf(thrown)
  }
  const accessToken = accessTokenOf(answer)
  const { sub: userId = '', session_id: sessionId = '' } =
    await services.accessTokens.verify(accessToken)
  const user = await findUserById(services.store, userId)
  const session = await findSession(services.store, sessionId)
  // Read before the check: a password change in between must end the session.
  if (user === undefined || session === undefined) return refused(401, CHANGED)
  return { kind: 'user', user, sessionId }
}

function refusalOf(thrown: unknown): Refusal {
  const error = normalizeError(thrown)
  if (error.status >= 500) throw thrown
  if (error.status !== 429) return refused(401, error.message)
  return { kind: 'limited', seconds: error.retryAfterSeconds ?? 1 }
}

async function endSession(
  { store }: AuthServices,
  { userId, sessionId }: { readonly userId: string; readonly sessionId?: string },
): Promise<void> {
  if (sessionId !== undefined) await endSessions(store, { userId, scope: 'local', sessionId })
}

/** Asks for a second factor where the user has one. */
async function judgeFactors(
  services: AuthServices,
  request: AuthRequest,
  { user, code }: { readonly user: UserRow; readonly code: string },
): Promise<Refusal | { readonly isProven: boolean }> {
  const factors = await listFactors(services.store, user.id)
  const verified = factors.filter(({ status }) => status === 'verified')
  if (verified.length === 0) return { isProven: false }
  const proof = await judgeFactor(services, request, { verified, user, code })
  return proof === 'proven' ? { isProven: true } : proof
}

/** Checks the code of a second factor; failures count and delay, like those of the user server. */
async function judgeFactor(
  services: AuthServices,
  request: AuthRequest,
  proof: { readonly verified: FactorRow[]; readonly user: UserRow; readonly code: string },
): Promise<Refusal | 'proven'> {
  const { verified, user, code } = proof
  // An empty code requests the second field of the form and does not count as a guess.
  if (code === '') return refused(401, SECOND_FACTOR)
  try {
    const passed = await services.guesses.judge(
      { kind: 'factor', account: user.id, network: request.network },
      () => isProven(services, verified, code),
      (isRight) => isRight,
    )
    return passed ? 'proven' : refused(401, SECOND_FACTOR)
  } catch (thrown) {
    return refusalOf(thrown)
  }
}

/** Whether a code is the current one of an authenticator; each code is accepted once. */
async function isProven(
  { store, clock }: AuthServices,
  factors: readonly FactorRow[],
  code: string,
): Promise<boolean> {
  for (const { id, secret } of factors) {
    // This page supports no codes by phone.
    const step = secret === null ? undefined : findTotpStep(secret, code, clock.now())
    if (step !== undefined && (await acceptTotpStep(store, id, step))) return true
  }
  return false
}

function accessTokenOf(answer: Answer): string {
  const body = answer.kind === 'json' ? (answer.body as { readonly access_token?: unknown }) : {}
  if (typeof body.access_token !== 'string') throw new Error('the sign-in gave no access token')
  return body.access_token
}
