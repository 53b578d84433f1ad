import { createPublicKey, generateKeyPairSync } from 'node:crypto'

import { decodeJwt, exportJWK, generateKeyPair, jwtVerify, SignJWT, UnsecuredJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createAccessTokens } from '#api/auth/sessions/access-token.ts'
import { createAccessTokenVerifier } from '#api/auth/sessions/verify-access-token.ts'
import { systemClock } from '#shared/clock.ts'

import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import { readConfig, signToken, startServer, type TestServer } from './support/server.ts'
import { watchStatements } from './support/statements.ts'

const ALGORITHMS = ['RS256', 'ES256', 'EdDSA'] as const

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    env: {
      AUTH_JWT_AUD: 'authenticated',
      AUTH_JWT_DEFAULT_GROUP_NAME: 'authenticated',
      AUTH_JWT_ISSUER: 'https://issuer.example.com',
    },
  })
})

afterAll(() => server.close())

describe('an access token', () => {
  it('states who the user is and how they signed in', async () => {
    const session = await signedInUser(server)
    const [head = '', claims = ''] = session.access_token.split('.')
    const parse = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString())
    expect(parse(head)).toEqual({ alg: 'HS256', typ: 'JWT' })
    const payload = parse(claims)
    expect(payload).toEqual({
      iss: 'https://issuer.example.com',
      sub: session.user.id,
      aud: 'authenticated',
      exp: payload.iat + 3600,
      iat: expect.any(Number),
      email: session.user.email,
      phone: '',
      app_metadata: { provider: 'email', providers: ['email'] },
      user_metadata: { email_verified: true },
      role: 'authenticated',
      aal: 'aal1',
      amr: [{ method: 'password', timestamp: expect.any(Number) }],
      session_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      is_anonymous: false,
    })
    expect(session.expires_at).toBe(payload.exp)
  })

  it('is refused when it is unsigned, forged, altered or too old', async () => {
    const session = await signedInUser(server)
    const claims = { sub: session.user.id, role: 'service_role' }
    const forged = await new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode('another secret of sufficient length'))
    const [head, body, signature] = session.access_token.split('.') as [string, string, string]
    const altered = Buffer.from(body, 'base64url')
      .toString()
      .replace('authenticated', 'service_role')
    const bad = [
      new UnsecuredJWT(claims).encode(),
      `${Buffer.from('{"alg":"none"}').toString('base64url')}.${body}.`,
      `${Buffer.from('{"alg":"None","typ":"JWT"}').toString('base64url')}.${body}.${signature}`,
      forged,
      `${head}.${Buffer.from(altered).toString('base64url')}.${signature}`,
      await signToken(server.services.config, { ...claims, exp: 1 }),
      'a.b.c',
      'nonsense',
    ]
    for (const bearer of bad) {
      for (const path of ['/user', '/admin/users']) {
        const answer = await server.call({ path, bearer })
        expect(answer.body).toMatchObject({ code: 403, error_code: 'bad_jwt' })
        expect(answer.body.msg).toMatch(/^invalid JWT: unable to parse or verify signature, /)
      }
    }
  })

  it('is read from the header and from nowhere else', async () => {
    const none = { code: 401, error_code: 'no_authorization' }
    const { access_token: accessToken } = await signedInUser(server)
    expect((await server.call({ path: '/user' })).body).toMatchObject(none)
    const headers = { authorization: `Basic ${accessToken}` }
    expect((await server.call({ path: '/user', headers })).body).toMatchObject(none)
    expect((await server.call({ path: `/user?access_token=${accessToken}` })).body).toMatchObject(
      none,
    )
  })

  it('must name a user that exists', async () => {
    const of = (claims: object) => signToken(server.services.config, { ...claims })
    const cases: readonly (readonly [object, object])[] = [
      [{}, { code: 403, msg: 'invalid claim: missing sub claim' }],
      [{ sub: 'x' }, { code: 400, error_code: 'bad_jwt' }],
      ...['sub', 'session_id', 'role'].map((name) => {
        const id = ['11111111-1111-4111-8111-111111111111']
        return [
          { sub: id[0], [name]: id },
          { code: 403, error_code: 'bad_jwt' },
        ] as const
      }),
      [
        { sub: '11111111-1111-4111-8111-111111111111' },
        { code: 403, error_code: 'user_not_found' },
      ],
    ]
    for (const [claims, expected] of cases) {
      const answer = await server.call({ path: '/user', bearer: await of(claims) })
      expect(answer.body).toMatchObject(expected)
    }
  })

  it('admits administrators by role only', async () => {
    const of = (claims: Record<string, unknown>) => signToken(server.services.config, claims)
    const status = async (claims: Record<string, unknown>): Promise<number> =>
      (await server.call({ path: '/admin/users', bearer: await of(claims) })).status
    expect(await status({ role: 'service_role' })).toBe(200)
    expect(await status({ sub: '1234567890', role: 'supabase_admin' })).toBe(200)
    expect(await status({ role: 'authenticated' })).toBe(403)
    expect(await status({ role: ['service_role'] })).toBe(403)
    expect(await status({})).toBe(403)
  })

  it('costs one statement, which reads user, session, identities and factors', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const factor = { factor_type: 'totp', friendly_name: 'phone' }
    await server.call({ method: 'POST', path: '/factors', body: factor, bearer })
    const statements: string[] = []
    watchStatements(server.database, (text) => statements.push(text))
    const answer = await server.call({ path: '/user', bearer })
    expect(statements).toHaveLength(1)
    expect(answer.body).toMatchObject({
      id: user.id,
      identities: user.identities,
      factors: [{ friendly_name: 'phone', status: 'unverified' }],
    })
    const foreign = await signedInUser(server)
    const claims = { sub: user.id, session_id: decodeJwt(foreign.access_token).session_id }
    const stolen = await server.call({
      path: '/user',
      bearer: await signToken(server.services.config, claims),
    })
    expect(stolen.body).toMatchObject({ code: 403, error_code: 'session_not_found' })
  })

  it('must be for the audience that the request names', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const headers = { 'x-jwt-aud': 'somebody-else' }
    expect((await server.call({ path: '/user', bearer, headers })).body).toMatchObject({
      code: 400,
      error_code: 'unexpected_audience',
    })
  })

  it('names an audience of at most 255 characters, however long that of the request is', async () => {
    const signUp = (audience: string) => {
      const body = { email: newEmail(), password: PASSWORD }
      return server.call({
        method: 'POST',
        path: '/signup',
        body,
        headers: { 'x-jwt-aud': audience },
      })
    }
    expect((await signUp('a'.repeat(255))).body.aud).toBe('a'.repeat(255))
    expect((await signUp('a'.repeat(256))).body).toMatchObject({
      code: 400,
      error_code: 'validation_failed',
      msg: 'X-JWT-AUD must not have more than 255 characters',
    })
  })

  it('is understood by the other surfaces, and keys of a project are not users', async () => {
    const verifyAccessToken = createAccessTokenVerifier(
      server.services.accessTokens,
      'authenticated',
    )
    const session = await signedInUser(server)
    expect(await verifyAccessToken(session.access_token)).toMatchObject({
      userId: session.user.id,
      role: 'authenticated',
      assuranceLevel: 'aal1',
    })
    expect(await verifyAccessToken(await server.serviceToken())).toBeUndefined()
    expect(await verifyAccessToken('nonsense')).toBeUndefined()
  })
})

describe('several signing keys', () => {
  for (const alg of ALGORITHMS) {
    it(`signs with ${alg}, publishes only the public half, and accepts older tokens too`, async () => {
      const { privateKey } = await generateKeyPair(alg, { extractable: true })
      const jwk = { ...(await exportJWK(privateKey)), alg, kid: 'new', key_ops: ['sign', 'verify'] }
      const old = {
        kty: 'oct',
        alg: 'HS256',
        kid: 'old',
        k: Buffer.from('an older secret of thirty-two bytes').toString('base64url'),
        key_ops: ['verify'],
      }
      const keyed = await startServer({ env: { AUTH_JWT_KEYS: JSON.stringify([jwk, old]) } })
      try {
        const bearer = await new SignJWT({ role: 'service_role' })
          .setProtectedHeader({ alg: 'HS256', kid: 'old' })
          .sign(new TextEncoder().encode('an older secret of thirty-two bytes'))
        expect((await keyed.call({ path: '/admin/users', bearer })).status).toBe(200)
        const { email } = await createUser(keyed)
        const session = await signIn(keyed, email)
        const { body, headers } = await keyed.call({ path: '/.well-known/jwks.json' })
        expect(headers['cache-control']).toBe('public, max-age=600')
        expect(body.keys).toHaveLength(1)
        expect(body.keys[0]).toMatchObject({ alg, kid: 'new', use: 'sig', key_ops: ['verify'] })
        for (const secret of ['d', 'p', 'q', 'k']) expect(body.keys[0]).not.toHaveProperty(secret)
        const publicKey = createPublicKey({ key: body.keys[0], format: 'jwk' })
        const verified = await jwtVerify(session.access_token, publicKey, { algorithms: [alg] })
        expect(verified.protectedHeader).toMatchObject({ alg, kid: 'new' })
        expect((await keyed.call({ path: '/user', bearer: session.access_token })).status).toBe(200)
        await refuseConfusion(keyed, publicKey.export({ type: 'spki', format: 'pem' }) as string)
      } finally {
        await keyed.close()
      }
    })
  }

  it('does not start with a signing key that fits no sign-in', async () => {
    const { publicKey } = await generateKeyPair('ES256')
    const { privateKey: short } = generateKeyPairSync('rsa', { modulusLength: 1024 })
    const keys = {
      'the public half': { ...(await exportJWK(publicKey)), alg: 'ES256' },
      'a short key': { ...short.export({ format: 'jwk' }), alg: 'RS256' },
      'an empty secret': { kty: 'oct', k: '', alg: 'HS256' },
      'no secret': { kty: 'oct', alg: 'HS256' },
      'another curve': {
        ...generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey.export({ format: 'jwk' }),
        alg: 'ES256',
      },
    }
    for (const [name, jwk] of Object.entries(keys)) {
      const key = { ...jwk, kid: 'mine', key_ops: ['sign', 'verify'] }
      const { jwt } = readConfig({
        AUTH_SITE_URL: 'http://localhost:3000',
        AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
        AUTH_JWT_SECRET: 'a secret of sufficient length',
        AUTH_JWT_KEYS: JSON.stringify([key]),
      })
      await expect(createAccessTokens(jwt, systemClock), name).rejects.toThrow(
        /the key "mine" of AUTH_JWT_KEYS/,
      )
    }
  })

  it('never shows the shared secret', async () => {
    expect((await server.call({ path: '/.well-known/jwks.json' })).body).toEqual({ keys: [] })
  })
})

// The public key used as a shared secret: the oldest trick against verifiers that trust the header.
async function refuseConfusion(keyed: TestServer, pem: string): Promise<void> {
  for (const kid of ['new', undefined]) {
    const bearer = await new SignJWT({ role: 'service_role' })
      .setProtectedHeader({ alg: 'HS256', ...(kid && { kid }) })
      .sign(new TextEncoder().encode(pem))
    expect((await keyed.call({ path: '/admin/users', bearer })).body).toMatchObject({ code: 403 })
  }
}
