import type { LookupAddress } from 'node:dns'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'

import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'

import {
  createGuardedFetch,
  type GuardedFetchOptions,
  type OutgoingFailure,
} from '#shared/net/guarded-fetch.ts'
import { openKeepAliveAgents } from '#shared/net/keep-alive-agents.ts'
import {
  type HttpPeer,
  type PeerReply,
  type PeerRequest,
  startHttpPeer,
} from '#test/support/http-peers.ts'

let peer: HttpPeer
let answer: (request: PeerRequest) => PeerReply
beforeEach(async () => {
  answer = () => ({ body: 'hello' })
  peer = await startHttpPeer((request) => answer(request))
})
afterEach(() => peer.stop())

const port = () => new URL(peer.url).port

const open = (options: Partial<GuardedFetchOptions> = {}) =>
  createGuardedFetch({ timeoutMs: 5_000, allowsPrivateAddresses: true, ...options })

async function refused(
  promise: Promise<unknown>,
  reason: OutgoingFailure,
): Promise<{ message: string }> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toMatchObject({ name: 'OutgoingError', reason })
  return error as { message: string }
}

describe('a call outside', () => {
  it('brings status, type and text, and sends forms', async () => {
    const reply = await open()({
      url: `${peer.url}/a?b=c`,
      method: 'POST',
      headers: { authorization: 'Bearer x' },
      form: { one: 'ä&b' },
    })
    expect(reply).toEqual({
      status: 200,
      contentType: 'text/html',
      retryAfter: '',
      bytes: Buffer.from('hello'),
      text: 'hello',
    })
    const [request] = peer.requests
    expect(request?.form).toEqual({ one: 'ä&b' })
    expect(request?.headers).toMatchObject({ authorization: 'Bearer x' })
  })

  it('fails when the server switches protocols', async () => {
    const server = createServer((socket) => {
      const head = 'HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'
      socket.once('data', () => socket.write(head))
    })
    onTestFinished(() => void server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    await refused(open()({ url: `http://127.0.0.1:${port}/` }), 'network')
  })

  it('shares the lookup of a name with calls that are waiting for it', async () => {
    const answer = Promise.withResolvers<LookupAddress[]>()
    const names: string[] = []
    const fetch = open({
      resolve: (name) => {
        names.push(name)
        return answer.promise
      },
    })
    const calls = [1, 2, 3].map(() => fetch({ url: `http://slow.test:${port()}/` }))
    await expect.poll(() => names).toEqual(['slow.test'])
    answer.resolve([{ address: '127.0.0.1', family: 4 }])
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200, 200])
    await fetch({ url: `http://slow.test:${port()}/` })
    expect(names).toHaveLength(2)
  })

  it('goes to the public internet only, however the address is written', async () => {
    const fetch = open({ allowsPrivateAddresses: false })
    const hosts = ['127.0.0.1', 'localhost', '2130706433', '0x7f.1', '[::1]', '[::ffff:127.0.0.1]']
    for (const host of hosts) {
      await refused(fetch({ url: `http://${host}:${port()}/` }), 'address')
    }
    await refused(fetch({ url: 'http://169.254.169.254/latest/meta-data/' }), 'address')
    expect(peer.requests).toHaveLength(0)
  })

  it('checks the very addresses that it connects to', async () => {
    const answers = [['8.8.8.8', '127.0.0.1'], ['127.0.0.1'], []]
    for (const addresses of answers) {
      const fetch = open({
        allowsPrivateAddresses: false,
        resolve: async () => addresses.map((address) => ({ address, family: 4 })),
      })
      await refused(fetch({ url: `http://rebind.test:${port()}/` }), 'address')
    }
    expect(peer.requests).toHaveLength(0)
    const toPeer = open({ resolve: async () => [{ address: '127.0.0.1', family: 4 }] })
    expect((await toPeer({ url: `http://rebind.test:${port()}/` })).text).toBe('hello')
    expect(peer.requests[0]?.headers.host).toBe(`rebind.test:${port()}`)
  })

  it('says of a private name what it says of an unknown one', async () => {
    const unknown = Object.assign(new Error('queryA ENOTFOUND db.test'), { code: 'ENOTFOUND' })
    const answers = {
      address: async () => [{ address: '10.0.0.1', family: 4 }],
      network: () => Promise.reject(unknown),
    }
    const messages = []
    for (const reason of ['address', 'network'] as const) {
      const fetch = open({ allowsPrivateAddresses: false, resolve: answers[reason] })
      messages.push((await refused(fetch({ url: `http://db.test:${port()}/` }), reason)).message)
    }
    expect(new Set(messages)).toEqual(new Set(['db.test has no public address']))
  })

  it('uses only http and https', async () => {
    for (const url of ['file:///etc/passwd', 'ftp://a.test/', 'gopher://a.test/', 'nonsense']) {
      await refused(open()({ url }), 'protocol')
    }
  })

  it('follows redirects only as far as allowed, and checks each', async () => {
    answer = ({ path }) =>
      path === '/end' ? { body: 'end' } : { status: 302, headers: { location: '/end' }, body: '' }
    const url = `${peer.url}/start`
    expect((await open({ redirectsMax: 1 })({ url })).text).toBe('end')
    expect((await open()({ url })).status).toBe(302)
    answer = () => ({ status: 302, headers: { location: '/again' }, body: '' })
    await refused(open({ redirectsMax: 3 })({ url }), 'redirects')
    answer = () => ({ status: 302, headers: { location: 'file:///etc/passwd' }, body: '' })
    await refused(open({ redirectsMax: 3 })({ url }), 'protocol')
  })

  it('is not redirected from the public internet into this network', async () => {
    // The check sees a public address, and the connection goes to the peer all the same.
    const seen = ['8.8.8.8']
    const onTheInternet = {
      family: 4,
      get address() {
        return seen.shift() ?? '127.0.0.1'
      },
    }
    const inside = { family: 4, address: '10.0.0.1' }
    const fetch = open({
      allowsPrivateAddresses: false,
      redirectsMax: 3,
      resolve: async (host) => [host === 'outside.test' ? onTheInternet : inside],
    })
    const places = ['127.0.0.1', '[::ffff:169.254.169.254]', '2130706433', 'inside.test']
    for (const place of places) {
      seen.splice(0, 1, '8.8.8.8')
      const location = `http://${place}:${port()}/secret`
      answer = () => ({ status: 302, headers: { location }, body: '' })
      await refused(fetch({ url: `http://outside.test:${port()}/` }), 'address')
    }
    expect(peer.requests.map(({ path }) => path)).toEqual(places.map(() => '/'))
  })

  it('shows credentials to no other host after a redirect', async () => {
    const other = await startHttpPeer(() => ({ body: 'other' }))
    answer = () => ({ status: 302, headers: { location: `${other.url}/` }, body: '' })
    const headers = { authorization: 'Bearer secret' }
    await open({ redirectsMax: 1 })({ url: peer.url, headers })
    expect(other.requests[0]?.headers.authorization).toBeUndefined()
    await other.stop()
  })

  it('reads no more than the limit', async () => {
    answer = () => ({ body: 'x'.repeat(2_000) })
    await refused(open({ bodyBytesMax: 1_999 })({ url: peer.url }), 'size')
    expect((await open({ bodyBytesMax: 2_000 })({ url: peer.url })).text).toHaveLength(2_000)
  })

  it('waits no longer than the limit, for a reply or for its end', async () => {
    answer = () => 'hang'
    await refused(open({ timeoutMs: 100 })({ url: peer.url }), 'timeout')
    answer = () => ({
      write(response) {
        const timer = setInterval(() => response.write('drip'), 20)
        response.on('close', () => clearInterval(timer))
      },
    })
    await refused(open({ timeoutMs: 200 })({ url: peer.url }), 'timeout')
  })

  it('names the host and no more when the connection is refused', async () => {
    const { host } = new URL(peer.url)
    await peer.stop()
    const url = `http://${host}/?code=secret`
    const { message } = await refused(open()({ url }), 'network')
    expect(message).toBe(`${host} cannot be reached`)
  })
})

describe('a kept connection', () => {
  const LIMITS = { idlePerHostMax: 1, idleMax: 1, idleMs: 4000, ageMs: 60_000 }

  /** Calls with the same agents; each answers the port from which its connection came. */
  function openKept(limits: Partial<typeof LIMITS>, options: Partial<GuardedFetchOptions> = {}) {
    const agents = openKeepAliveAgents({ ...LIMITS, ...limits })
    onTestFinished(() => agents.destroy())
    const fetch = open({ agents, ...options })
    return async (host = '127.0.0.1') => (await fetch({ url: `http://${host}:${port()}/` })).text
  }
  beforeEach(() => {
    answer = () => ({ write: (reply) => reply.end(String(reply.socket?.remotePort)) })
  })

  it('carries the next call to the same host', async () => {
    const call = openKept({})
    const first = await call()
    expect(await call()).toBe(first)
  })

  it.each([
    ['it is too old', { ageMs: 0 }],
    ['as many are idle as may be', { idleMax: 0 }],
  ])('is closed when %s', async (_, limits) => {
    const call = openKept(limits)
    const first = await call()
    expect(await call()).not.toBe(first)
  })

  it('is replaced when the server closes it while a request is sent', async () => {
    const call = openKept({})
    const first = await call()
    answer = () => ({
      write(reply) {
        if (String(reply.socket?.remotePort) === first) reply.destroy()
        else reply.end('new')
      },
    })
    expect(await call()).toBe('new')
    expect(peer.requests).toHaveLength(3)
  })

  it('is not replaced by one to a private address', async () => {
    const addresses = ['8.8.8.8', '127.0.0.1']
    const found = {
      family: 4,
      get address() {
        return addresses.shift() ?? '127.0.0.1'
      },
    }
    const options = { allowsPrivateAddresses: false, resolve: async () => [found] }
    const call = openKept({}, options)
    const first = await call('kept.test')
    expect(await call('kept.test')).toBe(first)
    answer = () => ({ write: (reply) => reply.destroy() })
    await refused(call('kept.test'), 'address')
    expect(peer.requests).toHaveLength(3)
  })
})
