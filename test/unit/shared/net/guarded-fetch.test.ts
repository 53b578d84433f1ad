import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { isPublicAddress } from '#shared/net/private-addresses.ts'
import { startHttpPeer, type HttpPeer } from '#test/support/http-peers.ts'

let peer: HttpPeer

beforeAll(async () => {
  peer = await startHttpPeer(({ path }) => {
    if (path === '/hang') return 'hang'
    if (path === '/loop') return { status: 302, headers: { location: '/loop' }, body: '' }
    if (path === '/file') return { status: 302, headers: { location: 'file:///x' }, body: '' }
    if (path === '/hop') return { status: 302, headers: { location: '/' }, body: '' }
    return { body: path === '/huge' ? 'x'.repeat(5000) : 'hello' }
  })
})
afterAll(() => peer.stop())

const limits = { timeoutMs: 2000, bodyBytesMax: 1000, redirectsMax: 2 }
const open = createGuardedFetch({ ...limits, allowsPrivateAddresses: true })
const guarded = createGuardedFetch({ ...limits, allowsPrivateAddresses: false })

describe('the guard', () => {
  it.each([
    'http://127.0.0.1/',
    'http://0x7f.1/',
    'http://2130706433/',
    'http://localhost/',
    'http://[::1]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:a9fe:a9fe]/',
    'http://[64:ff9b::7f00:1]/',
    'http://[2002:7f00:1::]/',
    'http://[fe80::1]/',
    'http://[fc00::1]/',
    'http://169.254.169.254/latest/meta-data',
    'http://10.1.2.3/',
    'http://192.168.0.1/',
    'http://100.64.0.1/',
    'http://0.0.0.0/',
  ])('refuses %s', async (url) => {
    await expect(guarded({ url })).rejects.toMatchObject({ reason: 'address' })
  })

  it('refuses a name that resolves to a private address, even beside a public one', async () => {
    const fetch = createGuardedFetch({
      ...limits,
      allowsPrivateAddresses: false,
      resolve: async () => [
        { address: '8.8.8.8', family: 4 },
        { address: '127.0.0.1', family: 4 },
      ],
    })
    const url = `http://name.test:${new URL(peer.url).port}/`
    const before = peer.requests.length
    await expect(fetch({ url })).rejects.toMatchObject({ reason: 'address' })
    expect(peer.requests.length).toBe(before)
  })

  it('asks for the addresses of a name once per connection', async () => {
    let lookups = 0
    const fetch = createGuardedFetch({
      ...limits,
      allowsPrivateAddresses: true,
      resolve: async () => {
        lookups += 1
        return [{ address: '127.0.0.1', family: 4 }]
      },
    })
    await fetch({ url: `http://name.test:${new URL(peer.url).port}/` })
    expect(lookups).toBe(1)
  })

  it('knows public addresses', () => {
    expect(isPublicAddress('8.8.8.8')).toBe(true)
    expect(isPublicAddress('2606:4700::1111')).toBe(true)
    expect(isPublicAddress('nonsense')).toBe(false)
  })
})

describe('the limits', () => {
  it.each([
    ['/huge', 'size'],
    ['/loop', 'redirects'],
    ['/file', 'protocol'],
  ])('stop %s', async (path, reason) => {
    await expect(open({ url: peer.url + path })).rejects.toMatchObject({ reason })
  })

  it('stop a server that never answers', async () => {
    const fetch = createGuardedFetch({ timeoutMs: 50, allowsPrivateAddresses: true })
    await expect(fetch({ url: `${peer.url}/hang` })).rejects.toMatchObject({ reason: 'timeout' })
  })

  it('let a redirect through', async () => {
    expect(await open({ url: `${peer.url}/hop` })).toMatchObject({ status: 200, text: 'hello' })
  })
})
