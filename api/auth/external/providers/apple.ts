import { ownIssuer, profileOfClaims } from '#api/auth/external/profile.ts'
import type { IdTokenRule, ProfileSource, ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

const idToken: IdTokenRule = {
  issuer: ownIssuer('https://appleid.apple.com'),
  audiences: ({ iosBundleId }) => (iosBundleId === '' ? [] : [iosBundleId]),
  // Apple guarantees every address, including relayed ones.
  profile: (claims) =>
    profileOfClaims(claims, { isVerified: true, customClaims: ['auth_time', 'is_private_email'] }),
}

/** Sign-in with Apple. */
export const apple: ProviderRow = {
  publicEndpoints: {
    authorize: 'https://appleid.apple.com/auth/authorize',
    token: 'https://appleid.apple.com/auth/token',
  },
  scopes: ['email', 'name'],
  clientAuth: 'body',
  parameters: { response_mode: 'form_post' },
  idToken,
  profile: appleProfile,
}

// Apple sends the name once, unsigned, with the code of the first sign-in.
async function appleProfile(source: ProfileSource) {
  const profile = idToken.profile(await source.claims(), source.config)
  const name = appleName(source.query.user)
  if (name === '') return profile
  return { ...profile, metadata: { ...profile.metadata, name, full_name: name } }
}

function appleName(text: string | undefined): string {
  if (text === undefined || text.length > 2000) return ''
  try {
    const user: unknown = JSON.parse(text)
    const parts = [textAt(user, 'name', 'firstName'), textAt(user, 'name', 'lastName')]
    return parts.filter(Boolean).join(' ')
  } catch {
    // Only the name is lost.
    return ''
  }
}
