import { createHmac } from 'node:crypto'

import { oneEmail, ownIssuer, profileOfClaims, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

/** Sign-in with Facebook. */
export const facebook: ProviderRow = {
  authorize: 'https://www.facebook.com/dialog/oauth',
  token: 'https://graph.facebook.com/oauth/access_token',
  scopes: ['email'],
  clientAuth: 'body',
  async profile({ load, at, config, tokens }) {
    const address = new URL(at('https://graph.facebook.com/me'))
    const proof = createHmac('sha256', config.secret).update(tokens.accessToken).digest('hex')
    address.searchParams.set('fields', 'email,first_name,last_name,name,picture')
    address.searchParams.set('appsecret_proof', proof)
    const user = await load(address.href)
    return toProfile({
      issuer: at('https://graph.facebook.com'),
      subject: textAt(user, 'id'),
      name:
        textAt(user, 'name') ||
        [textAt(user, 'first_name'), textAt(user, 'last_name')].filter(Boolean).join(' '),
      nickname: textAt(user, 'alias'),
      slug: textAt(user, 'alias'),
      picture: textAt(user, 'picture', 'data', 'url'),
      emails: oneEmail(textAt(user, 'email'), true),
    })
  },
  // Only "Limited Login" on devices returns an id token.
  idToken: {
    issuer: ownIssuer('https://www.facebook.com'),
    hasPlainNonce: true,
    profile: (claims) => profileOfClaims(claims, { isVerified: true }),
  },
}
