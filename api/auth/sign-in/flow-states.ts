import { createHash, randomUUID, timingSafeEqual } from 'node:crypto'

import { and, eq, gt, ne, or } from 'drizzle-orm'

import { invalid } from '#api/auth/errors.ts'
import { bindState } from '#api/auth/external/browser-binding.ts'
import { randomSecret, sha256 } from '#api/auth/secrets.ts'
import type { Store } from '#api/auth/store.ts'
import type { FlowStateRow } from '#shared/db/schema/auth.ts'

/** The client's half of PKCE. */
export interface PkceChallenge {
  readonly challenge: string
  readonly method: 's256' | 'plain'
}

/** A flow that ends in another request than it began. */
interface NewFlowState {
  readonly provider: string
  readonly authenticationMethod: string
  readonly pkce?: PkceChallenge | undefined
  readonly userId?: string | undefined
  readonly referrer?: string
  readonly providerCodeVerifier?: string
  readonly linkingUserId?: string | undefined
  readonly inviteLinkSha256?: Buffer | undefined
  /** Only the browser with this secret may return the state. */
  readonly browserSecret?: string | undefined
}

/** The PKCE fields of a body; undefined when there are none. Throws on half or malformed ones. */
export function parsePkce(body: {
  readonly code_challenge?: string | undefined
  readonly code_challenge_method?: string | undefined
}): PkceChallenge | undefined {
  const challenge = body.code_challenge ?? ''
  const method = (body.code_challenge_method ?? '').toLowerCase()
  if (challenge === '' && method === '') return undefined
  if (challenge === '' || method === '') {
    throw invalid('PKCE flow requires code_challenge_method and code_challenge', 'code_challenge')
  }
  if (method !== 's256' && method !== 'plain') {
    throw invalid(`unsupported code_challenge method "${method}"`, 'code_challenge_method')
  }
  if (challenge.length < 43 || challenge.length > 128) {
    throw invalid('code challenge has to be between 43 and 128 characters', 'code_challenge')
  }
  if (!/^[A-Za-z0-9._~-]+$/.test(challenge)) {
    throw invalid(
      'code challenge can only contain alphanumeric characters, hyphens, periods, underscores and tildes',
      'code_challenge',
    )
  }
  return { challenge, method }
}

/** Whether the verifier matches the challenge. */
export function isVerifierOf(flow: FlowStateRow, verifier: string): boolean {
  const { codeChallenge, codeChallengeMethod } = flow
  if (codeChallenge === null) return false
  const actual =
    codeChallengeMethod === 's256'
      ? createHash('sha256').update(verifier).digest('base64url')
      : verifier
  const [a, b] = [Buffer.from(actual), Buffer.from(codeChallenge)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Stores a flow; `state` is the value that an external provider returns. */
export async function startFlow(
  store: Store,
  flow: NewFlowState,
): Promise<{ id: string; state: string }> {
  const { pkce, browserSecret, ...fields } = flow
  const id = randomUUID()
  const state = bindState(randomSecret() + randomSecret(), browserSecret)
  await store.db.insert(store.tables.flowStates).values({
    id,
    ...fields,
    codeChallenge: pkce?.challenge ?? null,
    codeChallengeMethod: pkce?.method ?? null,
    stateSha256: sha256(state),
    createdAt: store.now(),
  })
  return { id, state }
}

/** The flow of a state, which becomes invalid; undefined when unknown, used or too old. */
export async function redeemState(
  store: Store,
  state: string,
  ttlSeconds: number,
): Promise<FlowStateRow | undefined> {
  const { flowStates } = store.tables
  const oldest = new Date(store.now().getTime() - ttlSeconds * 1000)
  const [flow] = await store.db
    .update(flowStates)
    .set({ stateSha256: null })
    .where(and(eq(flowStates.stateSha256, sha256(state)), gt(flowStates.createdAt, oldest)))
    .returning()
  return flow
}

/** Assigns to a PKCE flow the code that its client exchanges. */
export async function issueAuthCode(
  store: Store,
  flowStateId: string,
  fields: {
    readonly userId: string
    /** The identity that is linked when the code is exchanged. */
    readonly linkingProfile?: unknown
    readonly providerAccessToken?: string | undefined
    readonly providerRefreshToken?: string | undefined
  },
): Promise<string> {
  const { flowStates } = store.tables
  const authCode = randomUUID()
  await store.db
    .update(flowStates)
    .set({ ...fields, authCodeSha256: sha256(authCode), authCodeIssuedAt: store.now() })
    .where(eq(flowStates.id, flowStateId))
  return authCode
}

/** The flow that a code was assigned to. */
export async function findByAuthCode(
  store: Store,
  authCode: string,
): Promise<FlowStateRow | undefined> {
  const { flowStates } = store.tables
  const [flow] = await store.db
    .select()
    .from(flowStates)
    .where(eq(flowStates.authCodeSha256, sha256(authCode)))
  return flow
}

/** Deletes the flows of a user, except the one given. */
export async function clearOtherFlows(
  store: Store,
  userId: string,
  keptId: string | null,
): Promise<void> {
  const { flowStates } = store.tables
  const isOther = keptId === null ? undefined : ne(flowStates.id, keptId)
  const isOfUser = or(eq(flowStates.userId, userId), eq(flowStates.linkingUserId, userId))
  await store.db.delete(flowStates).where(and(isOfUser, isOther))
}

/** Ends a flow; false when a concurrent request did so first. */
export async function finishFlow(store: Store, id: string): Promise<boolean> {
  const { flowStates } = store.tables
  const deleted = await store.db
    .delete(flowStates)
    .where(eq(flowStates.id, id))
    .returning({ id: flowStates.id })
  return deleted.length > 0
}
