import { oneEmail, ownIssuer, profileOfClaims, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, isTrueAt, textAt } from '#shared/json.ts'

/** Sign-in with Kakao. */
export const kakao: ProviderRow = {
  authorize: 'https://kauth.kakao.com/oauth/authorize',
  token: 'https://kauth.kakao.com/oauth/token',
  scopes: ['account_email', 'profile_image', 'profile_nickname'],
  clientAuth: 'body',
  async profile({ load, at }) {
    const user = await load(at('https://kapi.kakao.com/v2/user/me'))
    const account = field(user, 'kakao_account')
    const nickname = textAt(account, 'profile', 'nickname')
    const isVerified = isTrueAt(account, 'is_email_verified') && isTrueAt(account, 'is_email_valid')
    return toProfile({
      issuer: at('https://kapi.kakao.com'),
      subject: textAt(user, 'id'),
      name: nickname,
      preferredUsername: nickname,
      userName: nickname,
      picture: textAt(account, 'profile', 'profile_image_url'),
      emails: oneEmail(textAt(account, 'email'), isVerified),
    })
  },
  idToken: {
    issuer: ownIssuer('https://kauth.kakao.com'),
    profile: (claims) => profileOfClaims(claims),
  },
}
