import { createHmac } from 'node:crypto'

import { afterAll, beforeAll, expect, it } from 'vitest'

import { signOauth1 } from '#api/auth/external/oauth1.ts'
import { azure } from '#api/auth/external/providers/azure.ts'
import { createProviders } from '#api/auth/external/providers.ts'
import { systemClock } from '#shared/clock.ts'
import type { ProviderConfig } from '#shared/config/auth-external.ts'
import { readExternalConfig } from '#shared/config/auth-external.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { type HttpPeer, startHttpPeer } from '#test/support/http-peers.ts'

let peer: HttpPeer
beforeAll(async () => {
  peer = await startHttpPeer(({ path }) => {
    if (path === '/oauth/request_token') return { body: 'oauth_token=rt&oauth_token_secret=rs' }
    if (path === '/oauth/access_token') return { body: 'oauth_token=at&oauth_token_secret=as' }
    return { body: { id_str: '99', screen_name: 'bird', name: 'Bird', email: 'b@test.dev' } }
  })
})
afterAll(() => peer.stop())

it('signs like the example of the OAuth 1.0a documentation', () => {
  // Twitter's developer documentation, "Creating a signature".
  const header = signOauth1({
    method: 'POST',
    url: 'https://api.twitter.com/1.1/statuses/update.json?include_entities=true&status=Hello%20Ladies%20%2B%20Gentlemen%2C%20a%20signed%20OAuth%20request%21',
    consumerKey: 'xvz1evFS4wEEPTGEFPHBog',
    consumerSecret: 'kAcSOqF21Fu85e7zjz7ZN2U4ZRhfV3WpwPAoE3Z7kBw',
    token: '370773112-GmHxMAgYyLbNEtIKZeRNFsMKPR9EyMZeS9weJAEb',
    tokenSecret: 'LswwdoUaIvS8ltyTt5jkRh4J50vUPVVHtR2YPi5kE',
    nonce: 'kYjzVBB8Y0ZFabxSWbWovY3uYSQ2pTgmZeNu2VS4cg',
    timestampSeconds: 1318622958,
  })
  expect(header).toContain(
    `oauth_signature="${encodeURIComponent('hCtSmYh+iHYCEqBWrE7C7hYmtUk=')}"`,
  )
})

it('signs a visitor in through Twitter, once per request token', async () => {
  const external = readExternalConfig(
    new EnvReader({
      AUTH_EXTERNAL_TWITTER_ENABLED: 'true',
      AUTH_EXTERNAL_TWITTER_CLIENT_ID: 'key',
      AUTH_EXTERNAL_TWITTER_SECRET: 'secret',
      AUTH_EXTERNAL_TWITTER_REDIRECT_URI: 'https://auth.test/callback',
      AUTH_EXTERNAL_TWITTER_URL: peer.url,
    }),
  )
  const fetch = createGuardedFetch({ timeoutMs: 2000, allowsPrivateAddresses: true })
  const twitter = createProviders({ external, fetch, clock: systemClock }).get('twitter')
  const url = await twitter.authorizationUrl({ state: 'st', scopes: '', query: {} })
  expect(url).toBe(`${peer.url}/oauth/authenticate?oauth_token=rt`)
  expect(peer.requests[0]?.headers.authorization).toContain('callback%3Fstate%3Dst')
  const callback = { code: 'v', query: { state: 'st', oauth_token: 'rt', oauth_verifier: 'v' } }
  expect(await twitter.exchange(callback)).toMatchObject({
    subject: '99',
    emails: [{ email: 'b@test.dev', isVerified: true }],
    metadata: { user_name: 'bird' },
    providerAccessToken: 'at',
  })
  // The second call is signed with the secrets of the application and of the request token.
  const sent = peer.requests[1]?.headers.authorization ?? ''
  const fields = [...sent.matchAll(/(\w+)="([^"]*)"/g)].map(
    (m) => [m[1] ?? '', m[2] ?? ''] as const,
  )
  const signature = fields.find(([name]) => name === 'oauth_signature')?.[1] ?? ''
  const parameters = fields
    .filter(([name]) => name !== 'oauth_signature')
    .map((pair) => pair.join('='))
    .toSorted()
    .join('&')
  const address = encodeURIComponent(`${peer.url}/oauth/access_token`)
  const base = `POST&${address}&${encodeURIComponent(parameters)}`
  const expected = createHmac('sha1', 'secret&rs').update(base).digest('base64')
  expect(decodeURIComponent(signature)).toBe(expected)
  await expect(twitter.exchange(callback)).rejects.toThrow('request token is unknown')
})

it('fills the tenant into the issuer of Azure', () => {
  const pattern = 'https://login.microsoftonline.com/{tenantid}/v2.0'
  const issuerOf = azure.idToken?.issuerOf
  expect(issuerOf?.(pattern, { tid: 't1' })).toBe('https://login.microsoftonline.com/t1/v2.0')
  const fixed = 'https://login.microsoftonline.com/t2/v2.0'
  expect(issuerOf?.(fixed, { tid: 't1' })).toBe(fixed)
})

// An administrator of any tenant writes any address: https://learn.microsoft.com/entra/identity-platform/migrate-off-email-claim-authorization
it.each([
  ['', { tid: 'foreign' }, false],
  ['https://login.microsoftonline.com/organizations', { tid: 'foreign' }, false],
  ['', { tid: 'foreign', xms_edov: true }, true],
  ['', { tid: '9188040d-6c67-4c5b-b112-36a304b66dad' }, true],
  ['https://login.microsoftonline.com/own-tenant', { tid: 'own' }, true],
  ['https://login.microsoftonline.com/own-tenant', { tid: 'own', xms_edov: false }, false],
])('trusts an address of Azure at "%s" with %o: %s', (url, claims, isVerified) => {
  const config = { url } as ProviderConfig
  const person = { sub: 'a', email: 'a@example.test', ...claims }
  expect(azure.idToken?.profile(person, config).emails).toMatchObject([{ isVerified }])
})
