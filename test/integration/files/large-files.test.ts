import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

import { expect } from 'vitest'

import { openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { it } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

const PIECE = Buffer.alloc(1024 * 1024, 'a line of no meaning at all\n')
const PIECES = 200
const GROWTH_MIB_MAX = 32
const BOUNDARY = 'b0undary'

/** The form of an upload, written as it is read. */
async function* formOf(pieces: number, filename: string) {
  const head = `--${BOUNDARY}\r\ncontent-disposition: form-data; name=`
  yield Buffer.from(`${head}"file"; filename="${filename}"\r\n\r\n`)
  for (let piece = 0; piece < pieces; piece += 1) yield PIECE
  yield Buffer.from(`\r\n${head}"purpose"\r\n\r\nuser_data\r\n--${BOUNDARY}--\r\n`)
}

async function upload(url: string, pieces: number): Promise<{ id: string; bytes: number }> {
  const answer = await fetch(`${url}/v1/files`, {
    method: 'POST',
    body: ReadableStream.from(formOf(pieces, 'large')) as NonNullable<RequestInit['body']>,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      'content-type': `multipart/form-data; boundary=${BOUNDARY}`,
    },
    duplex: 'half',
  })
  expect(answer.status).toBe(200)
  return (await answer.json()) as { id: string; bytes: number }
}

/** The largest resident memory of a process since the last reset. */
function peakMib({ pid }: TierProcess): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024
}

it('a file of 200 MB passes through without staying in memory, either way', {
  timeout: 300_000,
}, async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
  const tiers = openFaultTiers({ databaseUrl, redisUrl, keyPrefix, folder })
  try {
    const api = await tiers.startApi()
    // The first files load modules and grow buffers.
    await upload(api.url, 40)
    await upload(api.url, 40)
    const before = peakMib(api)
    const { id, bytes } = await upload(api.url, PIECES)
    expect(bytes).toBe(PIECES * PIECE.length)
    const hash = createHash('sha256')
    const answer = await fetch(`${api.url}/v1/files/${id}/content`, {
      headers: { authorization: `Bearer ${API_KEY}` },
    })
    for await (const chunk of answer.body as ReadableStream<Uint8Array>) hash.update(chunk)
    const sent = createHash('sha256')
    for (let piece = 0; piece < PIECES; piece += 1) sent.update(PIECE)
    expect(hash.digest('hex')).toBe(sent.digest('hex'))
    expect(peakMib(api) - before).toBeLessThan(GROWTH_MIB_MAX)
  } finally {
    await tiers.stop()
  }
})
