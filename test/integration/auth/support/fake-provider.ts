import type { ExternalProfile, Provider, Providers } from '#api/auth/ports.ts'
import { failure } from '#shared/errors.ts'

/** A provider that accepts every statement of the test about its visitors. */
export interface FakeProviders extends Providers {
  /** The visitor who comes back with the code of this name. */
  readonly visitors: Map<string, ExternalProfile>
  readonly seen: { state: string; scopes: string; query: Record<string, string> }[]
}

/** Providers `github` and `google`, of which both are enabled. */
export function fakeProviders(): FakeProviders {
  const visitors = new Map<string, ExternalProfile>()
  const seen: FakeProviders['seen'] = []
  const provider = (id: string): Provider => ({
    id,
    async authorizationUrl({ state, scopes, query }) {
      seen.push({ state, scopes, query })
      return `https://${id}.test/authorize?state=${state}`
    },
    async exchange({ code }) {
      const profile = visitors.get(code)
      if (profile === undefined) throw new Error('the provider does not know this code')
      return profile
    },
    async verifyIdToken(idToken) {
      const profile = visitors.get(idToken)
      if (profile === undefined) throw failure.invalidRequest('Bad ID token')
      return profile
    },
  })
  return {
    visitors,
    seen,
    allIds: ['github', 'google', 'gitlab'],
    idTokenIssuer: (id) => `https://${id}.test`,
    enabledIds: () => ['github', 'google'],
    get(id) {
      if (id === 'github' || id === 'google') return provider(id)
      throw failure.invalidRequest(`Unsupported provider: provider is not enabled`, {
        code: 'validation_failed',
      })
    },
  }
}

/** A visitor with one address. */
export function visitor(
  subject: string,
  email: string | undefined,
  options: { readonly isVerified?: boolean; readonly name?: string } = {},
): ExternalProfile {
  const { isVerified = true, name = 'Visitor' } = options
  return {
    subject,
    emails: email === undefined ? [] : [{ email, isVerified, isPrimary: true }],
    metadata: {
      iss: 'https://github.test',
      full_name: name,
      ...(email && { email, email_verified: isVerified }),
    },
    providerAccessToken: `access-${subject}`,
    providerRefreshToken: `refresh-${subject}`,
  }
}
