import { describe, expect, it } from 'vitest'

import { type AuthConfig, readAuthConfig } from '#shared/config/auth.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { PROVIDER_IDS, SPECIFIED_PROVIDER_IDS } from '#shared/config/provider-ids.ts'

const REQUIRED = {
  AUTH_SITE_URL: 'http://localhost:3000',
  AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
  AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
}

function read(env: Record<string, string>): { config: AuthConfig; problems: readonly string[] } {
  const reader = new EnvReader({ ...REQUIRED, ...env })
  return { config: readAuthConfig(reader), problems: reader.problems }
}

describe('the settings of the user server', () => {
  it('have the defaults of the specification', () => {
    const { config, problems } = read({})
    expect(problems).toEqual([])
    expect(config).toMatchObject({
      signup: { isDisabled: false, isEmailEnabled: true, isPhoneEnabled: false },
      jwt: {
        ttlSeconds: 3600,
        audience: 'authenticated',
        defaultGroupName: 'authenticated',
        adminRoles: ['service_role', 'supabase_admin'],
      },
      password: { lengthMin: 6, requiredCharacters: [] },
      security: { isRefreshTokenRotationEnabled: true, refreshTokenReuseIntervalSeconds: 10 },
      mailer: {
        isAutoconfirm: false,
        urlPaths: { invite: '/verify', emailChange: '/verify' },
        subjects: {
          invite: 'You have been invited',
          confirmation: 'Confirm Your Signup',
          recovery: 'Reset Your Password',
          magicLink: 'Your Magic Link',
          emailChange: 'Confirm Email Change',
        },
      },
      smtp: { confirmationGapSeconds: 900, linkGapSeconds: 60 },
      sms: { isAutoconfirm: false, gapSeconds: 60 },
      inherited: { adminGroupName: 'admin' },
      deprecations: [],
    })
  })

  it('that are required are named together if they are missing', () => {
    const reader = new EnvReader({})
    readAuthConfig(reader)
    expect(reader.problems).toEqual([
      expect.stringMatching(/^AUTH_SITE_URL is required/),
      expect.stringMatching(/^AUTH_API_EXTERNAL_URL is required/),
      expect.stringMatching(/^AUTH_JWT_SECRET is required/),
    ])
  })

  it('accept durations as bare seconds and in the style of Go', () => {
    for (const value of ['90', '90s', '1m30s']) {
      const { config } = read({ AUTH_SMTP_MAX_FREQUENCY: value, AUTH_SMS_MAX_FREQUENCY: value })
      expect([config.smtp.linkGapSeconds, config.sms.gapSeconds]).toEqual([90, 90])
    }
  })

  it('know the seventeen providers of the specification, and more', () => {
    expect(SPECIFIED_PROVIDER_IDS).toHaveLength(17)
    expect(new Set(PROVIDER_IDS).size).toBe(PROVIDER_IDS.length)
    expect(Object.keys(read({}).config.external.providers)).toEqual([...PROVIDER_IDS])
  })

  it.each([
    ['super-secret-jwt-token-with-at-least-32-characters-long', /published example/],
    ['secret', /less than 16 characters/],
  ])('start with the secret %s, and say what is wrong with it', (secret, weakness) => {
    const { config, problems } = read({ AUTH_JWT_SECRET: secret })
    expect(problems).toEqual([])
    expect(config.jwt.secretWeakness).toMatch(weakness)
    expect(read({}).config.jwt.secretWeakness).toBeUndefined()
  })

  const check = (name: string, env: Record<string, string>, problem: RegExp): void =>
    it(`refuse ${name}`, () => {
      expect(read(env).problems).toEqual([expect.stringMatching(problem)])
    })
  check(
    'a published secret on a server for others',
    {
      AUTH_JWT_SECRET: 'your-super-secret-jwt-token-with-at-least-32-characters-long',
      AUTH_API_EXTERNAL_URL: 'https://auth.example.com',
    },
    /AUTH_JWT_SECRET is a published example/,
  )
  check('a site without a host', { AUTH_SITE_URL: 'https://' }, /AUTH_SITE_URL must be a URL/)
  check(
    'a server that no link of a mail can lead to',
    { AUTH_API_EXTERNAL_URL: 'http://' },
    /AUTH_API_EXTERNAL_URL must be a URL/,
  )
  check(
    'a server at an address of an app',
    { AUTH_API_EXTERNAL_URL: 'myapp://auth' },
    /AUTH_API_EXTERNAL_URL must be a URL/,
  )
  check('access tokens that never live', { AUTH_JWT_EXP: '0' }, /AUTH_JWT_EXP must be at least/)
  check('keys that are not JSON', { AUTH_JWT_KEYS: '[{' }, /AUTH_JWT_KEYS is not usable/)
  check(
    'two keys that sign',
    {
      AUTH_JWT_KEYS: JSON.stringify([
        { kty: 'oct', alg: 'HS256', kid: 'a', k: 'x', key_ops: ['sign'] },
        { kty: 'oct', alg: 'HS256', kid: 'b', k: 'x', key_ops: ['sign'] },
      ]),
    },
    /exactly one key/,
  )
  check(
    'two keys of one name',
    {
      AUTH_JWT_KEYS: JSON.stringify([
        { kty: 'oct', alg: 'HS256', kid: 'a', k: 'x', key_ops: ['verify'] },
        { kty: 'oct', alg: 'HS256', kid: 'a', k: 'y', key_ops: ['sign'] },
      ]),
    },
    /two keys have the same kid/,
  )
  check(
    'keys of unknown algorithms',
    {
      AUTH_JWT_KEYS: JSON.stringify([{ kty: 'oct', alg: 'none', kid: 'a', key_ops: ['sign'] }]),
    },
    /alg of every key/,
  )
  check(
    'half a provider',
    {
      AUTH_EXTERNAL_GITHUB_ENABLED: 'true',
      AUTH_EXTERNAL_GITHUB_CLIENT_ID: 'id',
      AUTH_EXTERNAL_GITHUB_SECRET: 's',
    },
    /AUTH_EXTERNAL_GITHUB_REDIRECT_URI is required/,
  )
  check('a mail header that is none', { AUTH_SMTP_HEADERS: '{"X: Y":["z"]}' }, /SMTP_HEADERS/)
  check('a mail server without a sender', { AUTH_SMTP_HOST: 'mail' }, /AUTH_SMTP_ADMIN_EMAIL/)
  check('a CAPTCHA without a secret', { AUTH_SECURITY_CAPTCHA_ENABLED: 'true' }, /CAPTCHA_SECRET/)
  check('a rate that is none', { AUTH_RATE_LIMIT_EMAIL_SENT: 'many' }, /AUTH_RATE_LIMIT_EMAIL_SENT/)
  check('test codes that are none', { AUTH_SMS_TEST_OTP: 'x' }, /AUTH_SMS_TEST_OTP/)
  check('a gateway that does not exist', { AUTH_SMS_PROVIDER: 'pigeon' }, /must be one of/)

  it('that are deprecated are named once with their replacement', () => {
    const { config } = read({ AUTH_OPERATOR_TOKEN: 'x', AUTH_MFA_ENABLED: 'false' })
    expect(config.deprecations).toHaveLength(2)
    expect(config.mfa.totp).toEqual({ canEnroll: false, canVerify: false })
  })
})
