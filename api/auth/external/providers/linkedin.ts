import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, textAt } from '#shared/json.ts'

/** Sign-in with LinkedIn, before OpenID Connect. */
export const linkedin: ProviderRow = {
  authorize: 'https://api.linkedin.com/oauth/v2/authorization',
  token: 'https://api.linkedin.com/oauth/v2/accessToken',
  scopes: ['r_emailaddress', 'r_liteprofile'],
  clientAuth: 'body',
  async profile({ load, at }) {
    const user = await load(
      at(
        'https://api.linkedin.com/v2/me?projection=(id,firstName,lastName,profilePicture(displayImage~:playableStreams))',
      ),
    )
    const emails = await load(
      at('https://api.linkedin.com/v2/emailAddress?q=members&projection=(elements*(handle~))'),
    )
    const name = [localized(field(user, 'firstName')), localized(field(user, 'lastName'))]
    const pictures = field(field(user, 'profilePicture'), 'displayImage~')
    return toProfile({
      issuer: at('https://api.linkedin.com'),
      subject: textAt(user, 'id'),
      name: name.filter(Boolean).join(' '),
      picture: textAt(pictures, 'elements', 0, 'identifiers', 0, 'identifier'),
      emails: oneEmail(textAt(emails, 'elements', 0, 'handle~', 'emailAddress'), true),
    })
  },
}

// LinkedIn has a name per language, and states which one its owner prefers.
function localized(name: unknown): string {
  const language = textAt(name, 'preferredLocale', 'language')
  const country = textAt(name, 'preferredLocale', 'country')
  return textAt(name, 'localized', `${language}_${country}`)
}
