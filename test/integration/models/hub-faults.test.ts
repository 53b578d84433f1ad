import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { afterEach, beforeEach, describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import { COMMIT, REPOSITORY, startHub, type TestHub } from './hub-server.ts'
import { fetchOptionsOf, modelOf } from './pulls.ts'

const WEIGHTS = randomBytes(200_000)
const WEIGHTS_PATH = 'onnx/model_q4.onnx'
const FILES = {
  'config.json': '{"model_type":"llama"}',
  'tokenizer.json': '{}',
  [WEIGHTS_PATH]: WEIGHTS,
}
const MODEL = modelOf(`hub:${REPOSITORY}`)
const BELOW = 'hub/models--someone--some-model'

let hub: TestHub
beforeEach(async () => {
  hub = await startHub(FILES)
})
afterEach(() => hub.close())

const optionsFor = (folder: string, more?: Partial<StoredOptions>) =>
  fetchOptionsOf(hub, folder, more)

type Instead = TestHub['instead']
const status =
  (code: number, headers = {}): Instead =>
  (_request, response) => {
    response.writeHead(code, headers).end('{"error":"no"}')
    return true
  }
const breakingOff: Instead = (_request, response) => {
  response.writeHead(200, { 'content-length': 1000 }).write('{"sha":')
  setTimeout(() => response.destroy(), 50)
  return true
}
const signInPage: Instead = (_request, response) => {
  response.writeHead(200, { 'content-type': 'text/html' }).end('<html>Sign in</html>')
  return true
}

describe('a hub that is in trouble', () => {
  it.for([
    ['says 500', status(500)],
    ['says 503', status(503)],
    ['says 429', status(429, { 'retry-after': '3600' })],
    ['takes the token no longer', status(401)],
    ['breaks its answer off', breakingOff],
    ['is hidden behind a page to sign in', signInPage],
  ] as const)('%s: the model of the cache is used', async ([, instead], { folder }) => {
    const found = await ensureModel(MODEL, optionsFor(folder))
    hub.instead = instead
    expect(await ensureModel(MODEL, optionsFor(folder))).toBe(found)
  })

  it('is reported by name if the cache is empty', async ({ folder }) => {
    hub.instead = status(503)
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow(
      `the hub answers 503 for ${REPOSITORY}@main, and the cache does not hold`,
    )
    hub.instead = breakingOff
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow('cannot be reached')
  })

  it('has no such revision: the cache does not stand in for it', async ({ folder }) => {
    await ensureModel(MODEL, optionsFor(folder))
    hub.instead = status(404)
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow(
      `the hub has no ${REPOSITORY}@main`,
    )
  })

  it('is asked again for a listing or a file that it failed to send', async ({ folder }) => {
    const refused = new Set<string>()
    hub.instead = (request, response) => {
      const path = (request.url ?? '').split('?')[0] ?? ''
      if (refused.has(path)) return false
      refused.add(path)
      return status(503, { 'retry-after': '0' })(request, response)
    }
    const found = await ensureModel(MODEL, optionsFor(folder))
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
    expect(refused.size).toBeGreaterThan(4)
  })

  it.for([
    ['http://[', 'redirects to an invalid address'],
    ['file:///etc/passwd', 'redirects to an invalid address'],
    ['/elsewhere', 'redirects in circles'],
  ] as const)('leads to %s: it is said', async ([location, message], { folder }) => {
    hub.instead = status(302, { location })
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow(message)
  })

  it('names the file whose connection keeps breaking', async ({ folder }) => {
    hub.breaks.set(
      WEIGHTS_PATH,
      Array.from({ length: 20 }, () => 0),
    )
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow(
      `${REPOSITORY}: ${WEIGHTS_PATH} cannot be fetched: the connection ended early`,
    )
  })

  it.for([
    [
      'sends a different part than requested',
      206,
      `bytes 7-${WEIGHTS.length - 1}/${WEIGHTS.length}`,
    ],
    ['does not have the requested part', 416, `bytes */${WEIGHTS.length}`],
  ] as const)('%s: the file is fetched again', async ([, code, range], { folder }) => {
    hub.breaks.set(WEIGHTS_PATH, [50_000])
    hub.instead = (request, response) => {
      if (request.headers.range === undefined) return false
      response.writeHead(code, { 'content-range': range }).end(WEIGHTS.subarray(7))
      return true
    }
    const found = await ensureModel(MODEL, optionsFor(folder))
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
  })
})

describe('a listing with odd names', () => {
  it.for(['../../../evil.json', '/evil.json', 'runs/12:00:00.json', 'a\\b.json'])(
    'does without %s, which no model needs',
    async (path, { folder }) => {
      hub.listedBesides.push({ type: 'file', path, size: 2, oid: 'a'.repeat(40) })
      const found = await ensureModel(MODEL, optionsFor(folder))
      const names = await readdir(found, { recursive: true })
      expect(names.toSorted()).toEqual(['config.json', 'onnx', WEIGHTS_PATH, 'tokenizer.json'])
      expect(paths().filter((each) => each.includes('evil'))).toEqual([])
    },
  )
})

const paths = () => hub.seen.map(({ path }) => path)

describe('an endless listing', () => {
  it('is refused before it fills the memory', async ({ folder }) => {
    const entry = { type: 'file', path: 'x', size: 2, oid: 'a'.repeat(40) }
    const page = JSON.stringify(Array.from({ length: 20_000 }, () => entry))
    hub.instead = ({ url = '' }, response) => {
      if (!url.includes('/tree/')) return false
      response.writeHead(200, { link: `<${url}>; rel="next"` }).end(page)
      return true
    }
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow('has too many files')
    expect(paths().filter((path) => path.includes('/tree/'))).toHaveLength(3)
  })
})

describe('the cache', () => {
  it('keeps no part of a file that the repository has no longer', async ({ folder }) => {
    const blobs = join(folder, 'cache', BELOW, 'blobs')
    await mkdir(blobs, { recursive: true })
    await writeFile(join(blobs, `${'ab'.repeat(32)}.part`), 'half of an older file')
    await writeFile(join(blobs, 'of-another-tool.incomplete'), '')
    const listings = join(folder, 'cache', BELOW, 'listings')
    await mkdir(listings)
    await writeFile(join(listings, `${COMMIT}.json.99.new`), '[{"pa')
    await ensureModel(MODEL, optionsFor(folder))
    expect(await readdir(blobs)).toEqual(['of-another-tool.incomplete'])
    expect(await readdir(listings)).toEqual([`${COMMIT}.json`])
  })

  it('is found at its new place', async ({ folder }) => {
    await ensureModel(MODEL, optionsFor(folder))
    const cacheDir = join(folder, 'elsewhere')
    await rename(join(folder, 'cache'), cacheDir)
    const options = { hub: { endpoint: hub.endpoint, accessToken: '', isOffline: true }, cacheDir }
    const found = await ensureModel(MODEL, optionsFor(folder, options))
    expect(existsSync(join(found, WEIGHTS_PATH))).toBe(true)
  })

  it.for(['{}', 'null', '[]', '[{"path":5}]'])(
    'holds a damaged listing, %s: it is fetched again',
    async (text, { folder }) => {
      const found = await ensureModel(MODEL, optionsFor(folder))
      await writeFile(join(folder, 'cache', BELOW, 'listings', `${COMMIT}.json`), text)
      expect(await ensureModel(MODEL, optionsFor(folder))).toBe(found)
    },
  )

  it('is checked to the last byte on request, and repaired by the next thorough pull', async ({
    folder,
  }) => {
    const found = await ensureModel(MODEL, optionsFor(folder))
    await writeFile(join(found, WEIGHTS_PATH), Buffer.alloc(WEIGHTS.length))
    const offline = { endpoint: hub.endpoint, accessToken: '', isOffline: true }
    const verified = ensureModel(MODEL, optionsFor(folder, { hub: offline, isThorough: true }))
    await expect(verified).rejects.toThrow(`${WEIGHTS_PATH} is damaged, its checksum is wrong`)
    await ensureModel(MODEL, optionsFor(folder, { isThorough: true }))
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
  })

  it('releases the lock of a stopped pull, which can resume later', async ({ folder }) => {
    const stop = new AbortController()
    hub.instead = (request, response) => {
      if (!decodeURIComponent(request.url ?? '').includes(WEIGHTS_PATH)) return false
      response.writeHead(200, { 'content-length': WEIGHTS.length })
      response.write(WEIGHTS.subarray(0, 100_000), () => setTimeout(() => stop.abort(), 300))
      return true
    }
    const stopped = ensureModel(MODEL, optionsFor(folder, { signal: stop.signal }))
    await expect(stopped).rejects.toThrow()
    expect(existsSync(join(folder, 'cache', BELOW, '.pull.lock'))).toBe(false)
    hub.instead = () => false
    await ensureModel(MODEL, optionsFor(folder))
    expect(hub.seen.at(-1)?.range ?? paths().join()).toMatch(/^bytes=\d+-$/)
  })
})

it('fetches all parts of a speech model if one kind of weights is requested', async ({
  folder,
}) => {
  for (const stem of ['encoder_model', 'decoder_model_merged']) {
    for (const suffix of ['', '_q4']) hub.files.set(`onnx/${stem}${suffix}.onnx`, randomBytes(20))
  }
  hub.files.delete(WEIGHTS_PATH)
  const options = { onnxFile: 'decoder_model_merged_q4' }
  const found = await ensureModel({ ...MODEL, kind: 'audio', options }, optionsFor(folder))
  expect((await readdir(join(found, 'onnx'))).toSorted()).toEqual([
    'decoder_model_merged_q4.onnx',
    'encoder_model_q4.onnx',
  ])
})
