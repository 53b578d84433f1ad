import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { gzipSync } from 'node:zlib'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { report } from '#test/support/fault-report.ts'
import { API_KEY } from '#test/support/tiers.ts'

import { JSON_HEADERS, openTarget, type Target } from './hostile-target.ts'

const SETUP_TIMEOUT_MS = 400_000
const BOUNDARY = 'b0undary'
const FORM_HEADERS = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` }

let target: Target
beforeAll(async () => {
  target = await openTarget()
  // Memory that every kind of request allocates once is not growth caused by hostile ones.
  for (let time = 0; time < 3; time += 1) {
    const warm = { model: 'embed', input: 'a'.repeat(4_000_000) }
    await post('/embeddings', JSON.stringify(warm), JSON_HEADERS)
    await post('/files', `--${BOUNDARY}--\r\n`, FORM_HEADERS)
  }
}, SETUP_TIMEOUT_MS)
afterAll(() => target.close())
const post: Target['post'] = (...request) => target.post(...request)
const unharmed: Target['unharmed'] = (act) => target.unharmed(act)

const part = (name: string, value: string, filename = '') =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${filename}\r\n\r\n${value}\r\n`
const END = `--${BOUNDARY}--\r\n`
const nested = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
const manyKeys = (count: number) =>
  `{${Array.from({ length: count }, (_, at) => `"k${at}":1`).join()}}`

describe('bodies', () => {
  const word = 'a'.repeat(4_000_000)
  it.each<[string, string, () => string, number, string | null | undefined]>([
    [
      'nested a million deep',
      '/embeddings',
      () => `{"model":"embed","input":${nested(1e6)}}`,
      400,
      'input',
    ],
    [
      'of nested arrays',
      '/chat/completions',
      () => `{"model":"chat","messages":${'['.repeat(1e6)}`,
      400,
      'messages',
    ],
    ['of a million keys', '/embeddings', () => manyKeys(5e5), 400, 'k50000'],
    [
      'with a million biases',
      '/completions',
      () => `{"logit_bias":${manyKeys(5e5)}}`,
      400,
      'logit_bias',
    ],
    ['of 10 MB', '/completions', () => `{"prompt":"${'a'.repeat(1e7)}"}`, 413, null],
    [
      'with a word of 4 MB to complete',
      '/completions',
      () => JSON.stringify({ model: 'chat', prompt: word }),
      400,
      'prompt',
    ],
    [
      'with four million escaped quotes',
      '/completions',
      () => JSON.stringify({ model: 'chat', prompt: '"'.repeat(4e6) }),
      400,
      'prompt',
    ],
    [
      'with a word of 7 MB',
      '/chat/completions',
      () =>
        JSON.stringify({ model: 'chat', messages: [{ role: 'user', content: 'a'.repeat(7e6) }] }),
      400,
      'messages',
    ],
    [
      'with a word of 4 MB to embed',
      '/embeddings',
      () => JSON.stringify({ model: 'embed', input: word }),
      400,
      'input',
    ],
    [
      'with a word of 4 MB to search for',
      '/engines/chat/search',
      () => JSON.stringify({ query: word, documents: ['a'] }),
      400,
      'query',
    ],
    [
      'that would change prototypes',
      '/embeddings',
      () => '{"model":"embed","input":"a","__proto__":{"x":1}}',
      400,
      null,
    ],
  ])('%s are refused', { timeout: 120_000 }, async (_title, path, body, status, param) => {
    await unharmed(async () => {
      expect(await post(path, body(), JSON_HEADERS)).toMatchObject({ status, param })
    })
  })

  it('with a field named like a method are served without it', async () => {
    await unharmed(async () => {
      const body = '{"model":"embed","input":"a","constructor":{"x":1}}'
      expect(await post('/embeddings', body, JSON_HEADERS)).toMatchObject({ status: 200 })
    })
  })

  it("with thousands of long words do not delay the worker's other work", {
    timeout: 240_000,
  }, async () => {
    const input = Array.from({ length: 1500 }, () => 'a'.repeat(5000))
    const body = JSON.stringify({ model: 'embed', input })
    expect((await post('/embeddings', body, JSON_HEADERS)).status).toBe(200)
    expect(target.worker.isRunning()).toBe(true)
  })

  it.each(['/signup', '/v1/embeddings'])(
    'of single bytes for %s are refused',
    {
      timeout: 120_000,
    },
    async (path) => {
      const { hostname, port } = new URL(target.api.url)
      const head = `POST ${path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${API_KEY}\r\ncontent-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n`
      const send = async () => {
        const socket = connect(Number(port), hostname)
        socket.end(`${head}${'1\r\nx\r\n'.repeat(5e5)}0\r\n\r\n`)
        return Buffer.concat(await Array.fromAsync(socket)).toString('latin1', 0, 12)
      }
      await unharmed(async () => {
        expect(await Promise.all([send(), send(), send()])).toEqual(Array(3).fill('HTTP/1.1 400'))
      })
    },
  )

  it('that are compressed are refused as such', async () => {
    const body = Uint8Array.from(gzipSync(`{"model":"embed","input":"${'a'.repeat(1e8)}"}`))
    const headers = { ...JSON_HEADERS, 'content-encoding': 'gzip' }
    expect((await post('/embeddings', body, headers)).status).toBe(415)
  })
})

describe('forms', () => {
  it.each<[string, string, () => string, number, string | null | undefined]>([
    [
      'of 100,000 fields',
      '/audio/transcriptions',
      () => Array.from({ length: 1e5 }, (_, at) => part(`f${at}`, 'x')).join(''),
      413,
      null,
    ],
    [
      'of one field 100,000 times',
      '/images/edits',
      () => part('model', 'images').repeat(1e5),
      400,
      'model',
    ],
    [
      'of 100,000 files',
      '/files',
      () => part('file', 'x', '; filename="a"').repeat(1e5),
      400,
      'file',
    ],
    [
      'of a list of 100,000',
      '/audio/transcriptions',
      () => part('timestamp_granularities[]', 'word').repeat(1e5),
      413,
      null,
    ],
    ['with a name of a megabyte', '/files', () => part('n'.repeat(1e6), 'x'), 400, 'file'],
    ['with a field of 5 MB', '/files', () => part('purpose', 'a'.repeat(5e6)), 400, 'purpose'],
    ['with a field __proto__', '/files', () => part('__proto__', 'x'), 400, null],
    ['that break off', '/files', () => part('file', 'x', '; filename="a"').slice(0, -9), 400, null],
  ])('%s are refused', { timeout: 120_000 }, async (_title, path, body, status, param) => {
    await unharmed(async () => {
      expect(await post(path, body() + END, FORM_HEADERS)).toMatchObject({ status, param })
    })
  })

  it.each(['multipart/form-data', `multipart/form-data; boundary=${'x'.repeat(5000)}`])(
    'without an end that could be found are refused: %s',
    async (type) => {
      for (const path of ['/files', '/images/edits', '/audio/transcriptions']) {
        expect(await post(path, 'x', { 'content-type': type })).toMatchObject({ status: 400 })
      }
    },
  )
})

describe('connections', () => {
  it('with the headers of a user who has much metadata are accepted', async () => {
    const headers = { authorization: `Bearer ${API_KEY}`, 'x-large': 'a'.repeat(50_000) }
    expect((await fetch(`${target.api.url}/v1/models`, { headers })).status).toBe(200)
  })

  it('with headers that are too large receive an error in JSON', async () => {
    const { status, body } = await new Promise<{ status?: number; body: string }>(
      (resolve, reject) => {
        const headers = { authorization: `Bearer ${API_KEY}`, 'x-large': 'a'.repeat(100_000) }
        const request = httpRequest(
          `${target.api.url}/v1/models`,
          { headers, agent: false },
          (answer) => {
            let body = ''
            answer
              .on('data', (chunk) => (body += chunk))
              .on('end', () =>
                resolve({
                  ...(answer.statusCode !== undefined && { status: answer.statusCode }),
                  body,
                }),
              )
          },
        )
        request.on('error', reject).end()
      },
    )
    expect(status).toBe(431)
    expect(JSON.parse(body)).toMatchObject({
      error: { type: 'invalid_request_error', param: null, code: null },
    })
  })

  it('that stay half open by the thousands do not delay other clients', {
    timeout: 240_000,
  }, async () => {
    const { hostname, port } = new URL(target.api.url)
    const head = `POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${API_KEY}\r\n`
    const sockets: Socket[] = []
    try {
      await unharmed(async () => {
        const alone = await countServed()
        for (let count = 0; count < HALF_OPEN; count += 1) {
          const socket = connect(Number(port), hostname)
          socket.on('error', () => {})
          // Half of them stop in their headers, half in their bodies.
          socket.write(`${head}${count % 2 === 0 ? 'x-slow: ' : 'content-length: 99\r\n\r\n'}`)
          sockets.push(socket)
        }
        await Promise.all(sockets.map((socket) => socket.connecting && once(socket, 'connect')))
        // Once one is answered that came after them, all of them have been let in.
        await post('/embeddings', JSON.stringify({ model: 'embed', input: 'a' }), JSON_HEADERS)
        const among = await countServed((count) => {
          for (const socket of sockets.slice((count % 50) * 40, (count % 50) * 40 + 40)) {
            socket.write('a')
          }
        })
        report('half-open connections', {
          open: HALF_OPEN,
          'served alone': alone,
          'served among them': among,
          share: among / alone,
        })
      })
    } finally {
      for (const socket of sockets) socket.destroy()
    }
  })
})

const HALF_OPEN = 2000
const COUNTED_MS = 4000

/** How many requests are answered in a while, each as it should be. */
async function countServed(between: (count: number) => void = () => {}): Promise<number> {
  const until = performance.now() + COUNTED_MS
  let count = 0
  while (performance.now() < until) {
    between(count)
    const body = JSON.stringify({ model: 'embed', input: `Good ${count % 7}.` })
    expect((await post('/embeddings', body, JSON_HEADERS)).status).toBe(200)
    count += 1
  }
  return count
}
