import { readFileSync } from 'node:fs'
import type { Readable } from 'node:stream'

import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'

import { startS3 } from '#test/support/s3.ts'

import type { Figure } from './figure.ts'
import { takeTurns } from './rounds.ts'
import { openService, type BenchService } from './support/service.ts'

const MIB = 1024 * 1024
const PIECE = Buffer.alloc(MIB, 'some bytes that say nothing much\n')
const PIECES = 16
const LARGE_PIECES = 900
const WHOLE = Buffer.concat(Array.from({ length: PIECES }, () => PIECE))
const GROWTH_MIB = 16
const BOUNDARY = 'b0undary'

/**
 * Upload and download through the API against the same bytes straight to and from the same S3
 * server, and what the API process grows by while a file of 900 MB passes.
 */
export async function benchTransfer(): Promise<readonly Figure[]> {
  const s3 = await startS3()
  const { endpoint, bucket, accessKeyId, secretAccessKey, region } = s3.config
  const service = await openService([], {
    S3_ENDPOINT: endpoint,
    S3_BUCKET: bucket,
    S3_REGION: region,
    S3_ACCESS_KEY_ID: accessKeyId,
    S3_SECRET_ACCESS_KEY: secretAccessKey,
  })
  const raw = new S3Client({
    ...{ endpoint, region, forcePathStyle: true },
    credentials: { accessKeyId, secretAccessKey },
  })
  const place = { Bucket: bucket, Key: 'bench-raw' }
  const put = async (): Promise<void> => {
    await raw.send(new PutObjectCommand({ ...place, Body: WHOLE }))
  }
  const get = async (): Promise<void> => {
    const { Body } = await raw.send(new GetObjectCommand(place))
    await drain(Body as Readable)
  }
  try {
    const { id } = await upload(service, PIECES)
    await put()
    const up = await takeTurns(
      () => speed(async () => void (await upload(service, PIECES))),
      () => speed(put),
    )
    const down = await takeTurns(
      () => speed(() => download(service, id)),
      () => speed(get),
    )
    const before = peakMib(service)
    await upload(service, LARGE_PIECES)
    const ours = peakMib(service) - before
    return [
      { name: 'upload ÷ raw PUT', unit: 'MiB/s', ...up, target: { atLeast: 0.9 } },
      { name: 'download ÷ raw GET', unit: 'MiB/s', ...down, target: { atLeast: 0.95 } },
      {
        name: `growth of the API process by an upload of ${LARGE_PIECES} MiB ÷ ${GROWTH_MIB} MiB`,
        ...{ unit: 'MiB', ours, theirs: GROWTH_MIB, target: { atMost: 1 } },
      },
    ]
  } finally {
    raw.destroy()
    await service.close()
    await s3.stop()
  }
}

/** MiB per second of moving all pieces once. */
async function speed(move: () => Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await move()
  return (PIECES * 1000) / (performance.now() - startedAt)
}

async function upload(
  { url, headers }: BenchService,
  pieces: number,
): Promise<{ readonly id: string }> {
  const answer = await fetch(`${url}/files`, {
    method: 'POST',
    body: ReadableStream.from(formOf(pieces)),
    headers: { ...headers, 'content-type': `multipart/form-data; boundary=${BOUNDARY}` },
    duplex: 'half',
  })
  const body = (await answer.json()) as { id: string }
  if (!answer.ok) throw new Error(`the upload was answered ${answer.status}`)
  // What was measured once makes room for what comes next.
  if (pieces === PIECES) return body
  await fetch(`${url}/files/${body.id}`, { method: 'DELETE', headers })
  return body
}

async function* formOf(pieces: number): AsyncGenerator<Buffer> {
  const head = `--${BOUNDARY}\r\ncontent-disposition: form-data; name=`
  yield Buffer.from(`${head}"purpose"\r\n\r\nuser_data\r\n`)
  yield Buffer.from(`${head}"file"; filename="a"\r\n\r\n`)
  for (let piece = 0; piece < pieces; piece += 1) yield PIECE
  yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`)
}

async function download({ url, headers }: BenchService, id: string): Promise<void> {
  const answer = await fetch(`${url}/files/${id}/content`, { headers })
  if (!answer.ok || answer.body === null) throw new Error(`the download was ${answer.status}`)
  await drain(answer.body)
}

async function drain(body: AsyncIterable<Uint8Array>): Promise<void> {
  let bytes = 0
  for await (const chunk of body) bytes += chunk.length
  if (bytes !== WHOLE.length) throw new Error(`${bytes} bytes came back`)
}

/** The most that the API process has held in memory. */
function peakMib({ api }: BenchService): number {
  const status = readFileSync(`/proc/${api.pid}/status`, 'latin1')
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024
}
