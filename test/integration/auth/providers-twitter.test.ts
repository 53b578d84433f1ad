import { randomUUID } from 'node:crypto'

import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { createDelivery } from '#api/auth/delivery/create-delivery.ts'
import { createRedisRequestSecrets } from '#api/auth/external/request-secrets.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

import { readConfig, startServer, type TestServer } from './support/server.ts'

const CALLBACK = 'http://localhost:9999/callback'
let peer: HttpPeer
let redis: Redis
let server: TestServer
let tokens = 0
let profile: PeerReply = { body: {} }

beforeAll(async () => {
  peer = await startHttpPeer(({ path }) => {
    tokens += 1
    if (path === '/oauth/request_token') {
      return {
        body: `oauth_token=request${tokens}&oauth_token_secret=s&oauth_callback_confirmed=true`,
      }
    }
    if (path === '/oauth/access_token') {
      return { body: 'oauth_token=access&oauth_token_secret=s&user_id=99' }
    }
    return profile
  })
  redis = new Redis(inject('redisUrl'))
  const env = {
    AUTH_SITE_URL: 'http://localhost:3000',
    AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    AUTH_EXTERNAL_TWITTER_ENABLED: 'true',
    AUTH_EXTERNAL_TWITTER_CLIENT_ID: 'key',
    AUTH_EXTERNAL_TWITTER_SECRET: 'secret',
    AUTH_EXTERNAL_TWITTER_REDIRECT_URI: CALLBACK,
    AUTH_EXTERNAL_TWITTER_URL: peer.url,
  }
  const { providers } = createDelivery({
    config: readConfig(env),
    clock: systemClock,
    log: createLogger({ level: 'silent' }),
    requestSecrets: createRedisRequestSecrets(redis, `test:${randomUUID()}:`),
  })
  server = await startServer({ env, providers })
})
afterAll(async () => {
  await server.close()
  redis.disconnect()
  await peer.stop()
})

/** From the application to Twitter, where the visitor agrees, and the address that leads back. */
async function leave(): Promise<string> {
  const { status, location } = await server.call({ path: '/authorize?provider=twitter' })
  expect(status).toBe(302)
  const token = new URL(location).searchParams.get('oauth_token') as string
  const request = peer.requests.findLast(({ path }) => path === '/oauth/request_token')
  const header = request?.headers.authorization ?? ''
  const back = new URL(decodeURIComponent(/oauth_callback="(.*?)"/.exec(header)?.[1] ?? ''))
  back.searchParams.set('oauth_token', token)
  back.searchParams.set('oauth_verifier', 'verifier')
  expect(back.href.startsWith(`${CALLBACK}?state=`)).toBe(true)
  return back.href
}

async function arrive(address: string): Promise<Record<string, string>> {
  const { pathname, search } = new URL(address)
  const { location } = await server.call({ path: pathname + search })
  return Object.fromEntries(new URLSearchParams(new URL(location).hash.slice(1)))
}

describe('a visitor of Twitter', () => {
  it('signs in', async () => {
    const email = 'bird@test.dev'
    profile = { body: { id: 1e20, id_str: '99', screen_name: 'bird', name: 'Bird', email } }
    const fragment = await arrive(await leave())
    expect(fragment).toMatchObject({ provider: 'twitter', provider_token: 'access' })
    const bearer = fragment.access_token as string
    expect((await server.call({ path: '/user', bearer })).body).toMatchObject({
      email,
      identities: [{ provider: 'twitter', id: '99' }],
      user_metadata: { user_name: 'bird', preferred_username: 'bird', full_name: 'Bird' },
    })
  })

  it('without an address is refused', async () => {
    profile = { body: { id_str: '98', screen_name: 'silent' } }
    const { error_description: description } = await arrive(await leave())
    expect(description).toBe('Error getting user email from external provider')
  })

  it('cannot come back with the request token of another visitor, or twice with one', async () => {
    profile = { body: { id_str: '97', screen_name: 'third', email: 'third@test.dev' } }
    const [mine, theirs] = [new URL(await leave()), new URL(await leave())]
    const token = mine.searchParams.get('oauth_token') as string
    theirs.searchParams.set('oauth_token', token)
    expect(await arrive(theirs.href)).toMatchObject({ error: 'server_error' })
    expect(await arrive(mine.href)).toHaveProperty('access_token')
    expect(await arrive(mine.href)).toMatchObject({ error_code: 'bad_oauth_state' })
  })

  it('who declines comes back with the refusal', async () => {
    const back = new URL(await leave())
    const state = back.searchParams.get('state')
    const address = `${CALLBACK}?state=${state}&denied=${back.searchParams.get('oauth_token')}`
    expect(await arrive(address)).toEqual({
      error: 'access_denied',
      error_code: 'access_denied',
      error_description: 'The user denied the request',
    })
  })

  it('reports that Twitter refuses the application', async () => {
    await peer.stop()
    const answer = await server.call({ path: '/authorize?provider=twitter' })
    expect(answer).toMatchObject({
      status: 500,
      body: { error_code: 'unexpected_failure', msg: expect.stringContaining('external provider') },
    })
  })
})
