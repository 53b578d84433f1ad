/** Endpoint families whose requests make workers run. */
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
  'files',
  'activities:read',
  'activities:write',
  'usage',
  'keys',
  'organizations',
] as const

export type Scope = (typeof SCOPES)[number]

/** Members use what their organization has; its keys are for owners and administrators. */
export const MEMBER_SCOPES: readonly Scope[] = SCOPES.filter((scope) => scope !== 'keys')

/**
 * What a route demands of its caller; `any` is satisfied by every valid key. `none` demands no key:
 * the route has its own proof, such as a signed address.
 */
export type RequiredScope = Scope | 'any' | 'none'
