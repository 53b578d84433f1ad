/** Endpoint families whose requests run jobs. */
export const JOB_SCOPES = [
  'completions',
  'chat',
  'edits',
  'embeddings',
  'images',
  'audio',
  'search',
  'responses',
] as const

/** Endpoint families that an API key can be limited to. */
export const SCOPES = [
  ...JOB_SCOPES,
  'batches',
  'fine_tuning',
  'jobs',
  'files',
  'activities:read',
  'activities:write',
  'usage',
  'keys',
  'organizations',
  'webhooks',
] as const

export type Scope = (typeof SCOPES)[number]

/** The scopes of members; keys and webhooks require owners or administrators. */
export const MEMBER_SCOPES: readonly Scope[] = SCOPES.filter(
  (scope) => scope !== 'keys' && scope !== 'webhooks',
)

/**
 * The scope that a route requires; `any` accepts every valid key. `none` requires no key: the route
 * has its own proof, such as a signed URL.
 */
export type RequiredScope = Scope | 'any' | 'none'
