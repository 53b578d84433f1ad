import { createHash, randomBytes } from 'node:crypto'

import {
  and,
  count,
  desc,
  eq,
  exists,
  getTableColumns,
  gt,
  inArray,
  isNotNull,
  isNull,
  lte,
  not,
  or,
  type SQL,
  sql,
} from 'drizzle-orm'
import { alias } from 'drizzle-orm/pg-core'

import { failure } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import type { Db } from './client.ts'
import { ensureDefaultOrganization, holdOrganization } from './organizations.ts'
import type { OrganizationTables } from './schema/organizations.ts'
import { NO_QUOTAS, type Quotas } from './schema/quotas.ts'

/** The limits of one key besides those of the server; null sets none. */
export interface KeyLimits extends Quotas {
  readonly requestsPerMinute: number | null
  readonly tokensPerMinute: number | null
  /** Requests that may run jobs at the same time. */
  readonly concurrentJobs: number | null
}

export const NO_KEY_LIMITS: KeyLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  concurrentJobs: null,
  ...NO_QUOTAS,
}

/** An API key as its owner sees it. */
export interface StoredApiKey extends KeyLimits {
  readonly id: string
  readonly organizationId: string
  readonly name: string
  readonly prefix: string
  readonly scopes: readonly string[] | null
  readonly modelIds: readonly string[] | null
  /** The user who created the key; null means the operator. */
  readonly createdBy: string | null
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly lastUsedAt: Date | null
}

export interface ApiKeyRequest extends Partial<KeyLimits> {
  readonly organizationId: string
  readonly name: string
  readonly scopes: readonly string[] | null
  readonly modelIds: readonly string[] | null
  readonly expiresAt: Date | null
  readonly createdBy?: string | null
}

const SECRET_BYTES = 32
const VISIBLE_LENGTH = 10
// Per organization; one answer lists them all.
const KEYS_MAX = 10_000

/** The API keys of a database; secrets are never stored, only their SHA-256. */
export function openApiKeys(
  db: Db,
  tables: OrganizationTables,
  { mayCreateKeys = false }: { readonly mayCreateKeys?: boolean } = {},
) {
  const { apiKeys } = tables
  const isLive = isNull(apiKeys.revokedAt)
  const one = (organizationId: string, id: string) =>
    and(eq(apiKeys.organizationId, organizationId), eq(apiKeys.id, id), isLive)
  return {
    findBySecretHash: (sha256: Buffer): Promise<StoredApiKey | undefined> =>
      findWorkingKey(db, tables, { sha256, mayBeAnonymous: mayCreateKeys }),
    async create(request: ApiKeyRequest): Promise<{ key: StoredApiKey; secret: string }> {
      const secret = newSecret()
      const key = await db.transaction((tx) => insertOne(tx, tables, request, secret))
      if (key === undefined) throw new Error('256 random bits came twice')
      return { key, secret }
    },
    async list(organizationId: string): Promise<readonly StoredApiKey[]> {
      return db
        .select()
        .from(apiKeys)
        .where(and(eq(apiKeys.organizationId, organizationId), isLive))
        .orderBy(desc(apiKeys.createdAt), desc(apiKeys.id))
    },
    async find(organizationId: string, id: string): Promise<StoredApiKey | undefined> {
      const rows = await db.select().from(apiKeys).where(one(organizationId, id))
      return rows[0]
    },
    /** Replaces the secret of a key and its creator; the old secret is invalid at once. */
    async rotate(
      organizationId: string,
      id: string,
      createdBy: string | null,
    ): Promise<{ key: StoredApiKey; secret: string } | undefined> {
      const secret = newSecret()
      const rows = await db
        .update(apiKeys)
        .set({
          secretSha256: hashSecret(secret),
          prefix: secret.slice(0, VISIBLE_LENGTH),
          createdBy,
        })
        .where(one(organizationId, id))
        .returning()
      return rows[0] === undefined ? undefined : { key: rows[0], secret }
    },
    /** Replaces the limits of a key that are given. */
    limit: (organizationId: string, id: string, limits: Partial<KeyLimits>) =>
      limitKey(db, apiKeys, limits, one(organizationId, id)),
    async revoke(organizationId: string, id: string): Promise<boolean> {
      const rows = await db
        .update(apiKeys)
        .set({ revokedAt: new Date() })
        .where(one(organizationId, id))
        .returning({ id: apiKeys.id })
      return rows.length > 0
    },
    /** Whether the creator of a key may still create keys in the organization. */
    mayManage: (organizationId: string, userId: string): Promise<boolean> =>
      isManager(db, tables, { organizationId, userId }),
    async touch(id: string): Promise<void> {
      await db.update(apiKeys).set({ lastUsedAt: new Date() }).where(eq(apiKeys.id, id))
    },
  }
}

/**
 * Finds a key that is valid. Keys of a user's own organization are invalid while the user is
 * banned. Keys that an anonymous user created are invalid unless `mayBeAnonymous`, even if
 * anonymous users were allowed when they were created.
 */
async function findWorkingKey(
  db: Db,
  { apiKeys, organizations, users }: OrganizationTables,
  { sha256, mayBeAnonymous }: { readonly sha256: Buffer; readonly mayBeAnonymous: boolean },
): Promise<StoredApiKey | undefined> {
  const creators = alias(users, 'creators')
  const isOfAnonymous = exists(
    db
      .select({ id: creators.id })
      .from(creators)
      .where(and(eq(creators.id, apiKeys.createdBy), eq(creators.isAnonymous, true))),
  )
  const isBanned = gt(users.bannedUntil, sql`now()`)
  const rows = await db
    .select(getTableColumns(apiKeys))
    .from(apiKeys)
    .innerJoin(organizations, eq(organizations.id, apiKeys.organizationId))
    .leftJoin(users, and(eq(users.id, organizations.personalUserId), isBanned))
    .where(
      and(
        eq(apiKeys.secretSha256, sha256),
        isNull(apiKeys.revokedAt),
        isNull(users.id),
        mayBeAnonymous ? undefined : not(isOfAnonymous),
      ),
    )
  return rows[0]
}

async function limitKey(
  db: Db,
  apiKeys: OrganizationTables['apiKeys'],
  limits: Partial<KeyLimits>,
  which: SQL | undefined,
): Promise<StoredApiKey | undefined> {
  const rows = await db.update(apiKeys).set(limits).where(which).returning()
  return rows[0]
}

export type ApiKeyStore = ReturnType<typeof openApiKeys>

async function isManager(
  db: Db,
  { members, users }: OrganizationTables,
  { organizationId, userId }: { readonly organizationId: string; readonly userId: string },
): Promise<boolean> {
  const isFree = or(isNull(users.bannedUntil), lte(users.bannedUntil, sql`now()`))
  const rows = await db
    .select({ role: members.role })
    .from(members)
    .innerJoin(users, eq(users.id, members.userId))
    .where(
      and(
        eq(members.organizationId, organizationId),
        eq(members.userId, userId),
        inArray(members.role, ['owner', 'admin']),
        isNull(users.deletedAt),
        isFree,
      ),
    )
  return rows.length > 0
}

/** Keys are deleted with their organization, so a key created during the deletion is refused. */
async function insertOne(
  tx: Db,
  tables: OrganizationTables,
  request: ApiKeyRequest,
  secret: string,
): Promise<StoredApiKey | undefined> {
  const { apiKeys } = tables
  const { organizationId } = request
  const isHeld = await holdOrganization(tx, tables, organizationId)
  if (!isHeld) throw noSuchOrganization(organizationId)
  const isRevoked = sql<boolean>`${isNotNull(apiKeys.revokedAt)}`
  const counted = await tx
    .select({ total: count() })
    .from(apiKeys)
    .where(eq(apiKeys.organizationId, organizationId))
    .groupBy(isRevoked)
  if (counted.some(({ total }) => total >= KEYS_MAX)) throw tooManyKeys()
  return insert(tx, apiKeys, request, secret)
}

function tooManyKeys(): Error {
  return failure.invalidRequest(
    `An organization has at most ${KEYS_MAX} API keys, and may revoke as many within 30 days.`,
    { code: 'too_many_api_keys' },
  )
}

function noSuchOrganization(id: string): Error {
  return failure.notFound(`No such organization: ${id.slice(0, 64)}`)
}

function newSecret(): string {
  return `mr-${randomBytes(SECRET_BYTES).toString('base64url')}`
}

/** SHA-256 of a secret. A fast hash is enough for 256 random bits, which cannot be guessed. */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** Makes the given secret a key of the default organization; an existing one is kept. */
export async function ensureBootstrapKey(
  db: Db,
  tables: OrganizationTables,
  secret: string,
): Promise<void> {
  const organizationId = await ensureDefaultOrganization(db, tables)
  const { apiKeys } = tables
  const request = {
    organizationId,
    name: 'First key',
    scopes: null,
    modelIds: null,
    expiresAt: null,
  }
  // When several processes start at once, one inserts the row and the others find it.
  await insert(db, apiKeys, request, secret)
}

async function insert(
  db: Db,
  apiKeys: OrganizationTables['apiKeys'],
  request: ApiKeyRequest,
  secret: string,
): Promise<StoredApiKey | undefined> {
  const rows = await db
    .insert(apiKeys)
    .values({
      ...request,
      id: randomId('key_'),
      scopes: request.scopes === null ? null : [...request.scopes],
      modelIds: request.modelIds === null ? null : [...request.modelIds],
      secretSha256: hashSecret(secret),
      prefix: secret.slice(0, VISIBLE_LENGTH),
    })
    .onConflictDoNothing()
    .returning()
  return rows[0]
}
