import { randomUUID } from 'node:crypto'

import { and, countDistinct, eq, gt, inArray, lt } from 'drizzle-orm'

import { codeHmac, isSameBytes, randomDigits, randomLinkToken, sha256 } from '#api/auth/secrets.ts'
import type { Store } from '#api/auth/store.ts'
import { increased } from '#shared/db/expressions.ts'
import type { Metadata, OneTimeTokenKind, OneTimeTokenRow } from '#shared/db/schema/auth.ts'

/** Both ways to redeem a one-time token: by link and by typing the code. */
export interface MintedToken {
  readonly id: string
  readonly code: string
  readonly linkToken: string
  readonly expiresAt: Date
  /** Metadata that the user receives when the token is redeemed. */
  readonly userMetadata: Metadata | null
}

/** Credentials that an unconfirmed user receives when the token is redeemed. */
export interface PendingCredentials {
  readonly passwordHash?: string | undefined
  readonly userMetadata?: Metadata | undefined
  /** An external identity that the user keeps. */
  readonly identityId?: string | undefined
}

/** The prefix of links that lead to a PKCE code. */
export const PKCE_PREFIX = 'pkce_'

/** Creates a one-time token and invalidates an older one of the same kind. */
export async function mintOneTimeToken(
  store: Store,
  request: {
    readonly userId: string
    readonly kind: OneTimeTokenKind
    /** The address or number that receives the token. */
    readonly contact: string
    /** The address or number that the user changes to. */
    readonly changeTo?: string | undefined
    /** Replaces the credentials of the older token; `kept` moves them to the new one. */
    readonly credentials?: PendingCredentials | 'kept' | undefined
    readonly ttlSeconds: number
    readonly codeLength: number
    readonly pepper: string
    readonly flowStateId?: string | undefined
    /** The fixed code of a test number. */
    readonly fixedCode?: string | undefined
  },
): Promise<MintedToken> {
  const { oneTimeTokens } = store.tables
  const { userId, kind, contact, flowStateId, credentials } = request
  const now = store.now()
  const code = request.fixedCode ?? randomDigits(request.codeLength)
  const linkToken = (flowStateId === undefined ? '' : PKCE_PREFIX) + randomLinkToken()
  const row = {
    id: randomUUID(),
    linkSha256: sha256(linkToken),
    codeHmac: codeHmac(request.pepper, [kind, userId, contact], code),
    wrongAttempts: 0,
    flowStateId: flowStateId ?? null,
    contact,
    changeTo: request.changeTo ?? null,
    ...(credentials !== 'kept' && {
      passwordHash: credentials?.passwordHash ?? null,
      userMetadata: credentials?.userMetadata ?? null,
      identityId: credentials?.identityId ?? null,
    }),
    createdAt: now,
    expiresAt: new Date(now.getTime() + request.ttlSeconds * 1000),
  }
  const [minted] = await store.db
    .insert(oneTimeTokens)
    .values({ ...row, userId, kind })
    .onConflictDoUpdate({ target: [oneTimeTokens.userId, oneTimeTokens.kind], set: row })
    .returning({ userMetadata: oneTimeTokens.userMetadata })
  const { id, expiresAt } = row
  return { id, code, linkToken, expiresAt, userMetadata: minted?.userMetadata ?? null }
}

/** The valid one-time token of a link; undefined when unknown, used or too old. */
export async function findByLink(
  store: Store,
  linkToken: string,
  kinds: readonly OneTimeTokenKind[],
): Promise<OneTimeTokenRow | undefined> {
  const { oneTimeTokens } = store.tables
  const [row] = await store.db
    .select()
    .from(oneTimeTokens)
    .where(
      and(
        eq(oneTimeTokens.linkSha256, sha256(linkToken)),
        inArray(oneTimeTokens.kind, [...kinds]),
        gt(oneTimeTokens.expiresAt, store.now()),
      ),
    )
  return row
}

/**
 * The valid one-time token of a typed code. Every attempt is counted before the code is checked, so
 * that concurrent guesses count too; after `attemptsMax` wrong ones the code is void.
 */
export async function findByCode(
  store: Store,
  guess: {
    readonly userId: string
    readonly kinds: readonly OneTimeTokenKind[]
    readonly contact: string
    readonly code: string
    readonly pepper: string
    readonly attemptsMax: number
    /** Asks the gateway that created the code instead of comparing it. */
    readonly isRight?: (() => Promise<boolean>) | undefined
  },
): Promise<OneTimeTokenRow | undefined> {
  const { oneTimeTokens } = store.tables
  const rows = await store.db
    .update(oneTimeTokens)
    .set({ wrongAttempts: increased(oneTimeTokens.wrongAttempts) })
    .where(
      and(
        eq(oneTimeTokens.userId, guess.userId),
        inArray(oneTimeTokens.kind, [...guess.kinds]),
        gt(oneTimeTokens.expiresAt, store.now()),
        lt(oneTimeTokens.wrongAttempts, guess.attemptsMax),
      ),
    )
    .returning()
  if (guess.isRight !== undefined) {
    return rows.length > 0 && (await guess.isRight()) ? rows[0] : undefined
  }
  return rows.find((row) =>
    isSameBytes(
      row.codeHmac,
      codeHmac(guess.pepper, [row.kind, guess.userId, guess.contact], guess.code),
    ),
  )
}

/** How many of these users have a valid one-time token of these kinds. */
export async function countLive(
  store: Store,
  {
    userIds,
    kinds,
  }: { readonly userIds: readonly string[]; readonly kinds: readonly OneTimeTokenKind[] },
): Promise<number> {
  const { oneTimeTokens } = store.tables
  const [row] = await store.db
    .select({ total: countDistinct(oneTimeTokens.userId) })
    .from(oneTimeTokens)
    .where(
      and(
        inArray(oneTimeTokens.userId, [...userIds]),
        inArray(oneTimeTokens.kind, [...kinds]),
        gt(oneTimeTokens.expiresAt, store.now()),
      ),
    )
  return row?.total ?? 0
}

/** Consumes a one-time token; false when a concurrent request did so first. */
export async function consumeOneTimeToken(store: Store, id: string): Promise<boolean> {
  const { oneTimeTokens } = store.tables
  const deleted = await store.db
    .delete(oneTimeTokens)
    .where(eq(oneTimeTokens.id, id))
    .returning({ id: oneTimeTokens.id })
  return deleted.length > 0
}

/** Voids the one-time tokens of a user, of all kinds or of some. */
export async function clearOneTimeTokens(
  store: Store,
  userId: string,
  kinds?: readonly OneTimeTokenKind[],
): Promise<void> {
  const { oneTimeTokens } = store.tables
  const isMeant = kinds === undefined ? undefined : inArray(oneTimeTokens.kind, [...kinds])
  await store.db.delete(oneTimeTokens).where(and(eq(oneTimeTokens.userId, userId), isMeant))
}
