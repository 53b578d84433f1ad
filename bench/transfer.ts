import { readFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { json } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'

import { spawnReady } from '#test/support/queue.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openRawS3, type S3Settings } from './support/raw-s3.ts'
import { type BenchService, openService } from './support/service.ts'

const MIB = 1024 * 1024
const PIECES = 64
const LARGE_PIECES = 900
const GROWTH_MIB = 16
const BOUNDARY = 'b0undary'

/** The purpose and content of an uploaded file. */
interface Kind {
  readonly purpose: string
  readonly piece: Buffer
}

const PLAIN: Kind = {
  purpose: 'user_data',
  piece: Buffer.alloc(MIB, 'some bytes that say nothing much\n'),
}
const LINE = `${JSON.stringify({ text: 'a document of a few words, '.repeat(12) })}\n`
const LINES: Kind = {
  purpose: 'search',
  piece: Buffer.from(LINE.repeat(Math.floor(MIB / LINE.length))),
}

/**
 * Upload and download through the API against the same bytes straight to and from the same S3
 * server, and what the API process grows by while a file of 900 MB passes.
 */
export async function benchTransfer(): Promise<readonly Figure[]> {
  const s3 = await spawnReady(join(import.meta.dirname, 'support/s3-server.ts'), [])
  const settings = JSON.parse(s3.workerId) as S3Settings
  const service = await openService([], settings)
  const raw = openRawS3(settings)
  const whole = Buffer.concat(Array.from({ length: PIECES }, () => PLAIN.piece))
  const sending = (kind: Kind) => async () => remove(service, await upload(service, kind, PIECES))
  try {
    const inParts = await alternate(
      () => speed(sending(PLAIN)),
      () => speed(() => raw.putInParts(whole)),
    )
    const atOnce = await alternate(
      () => speed(sending(PLAIN)),
      () => speed(() => raw.put(whole)),
    )
    const lines = await alternate(
      () => speed(sending(LINES)),
      () => speed(() => raw.putInParts(whole)),
    )
    const id = await upload(service, PLAIN, PIECES)
    const down = await alternate(
      () => speed(() => download(service, id)),
      () => speed(async () => drain(await raw.get())),
    )
    const before = peakMib(service)
    await remove(service, await upload(service, PLAIN, LARGE_PIECES))
    const ours = peakMib(service) - before
    const unit = 'MiB/s'
    return [
      { name: 'upload ÷ raw PUT of the same parts', unit, ...inParts, target: { atLeast: 0.9 } },
      { name: 'upload ÷ one raw PUT of the whole', unit, ...atOnce, target: { atLeast: 0.9 } },
      { name: 'upload of JSON lines ÷ raw PUT of parts', unit, ...lines, target: { atLeast: 0.9 } },
      { name: 'download ÷ raw GET', unit, ...down, target: { atLeast: 0.95 } },
      {
        name: `growth of the API process by an upload of ${LARGE_PIECES} MiB ÷ ${GROWTH_MIB} MiB`,
        unit: 'MiB',
        ours,
        theirs: GROWTH_MIB,
        target: { atMost: 1 },
      },
    ]
  } finally {
    agent.destroy()
    raw.close()
    await service.close()
    s3.kill('SIGTERM')
    await s3.exited
  }
}

// As light a client as Node has, for the same reason on both sides: it shares the machine.
const agent = new Agent({ keepAlive: true })

/** MiB per second of moving all pieces once. */
async function speed(move: () => Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await move()
  return (PIECES * 1000) / (performance.now() - startedAt)
}

async function upload(service: BenchService, kind: Kind, pieces: number): Promise<string> {
  const headers = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` }
  const form = Readable.from(formOf(kind, pieces), { highWaterMark: 1 })
  const answer = await call(service, 'POST', '/files', { headers, body: form })
  const { id } = (await json(answer)) as { id: string }
  if (answer.statusCode !== 200) throw new Error(`the upload was answered ${answer.statusCode}`)
  return id
}

async function remove(service: BenchService, id: string): Promise<void> {
  await json(await call(service, 'DELETE', `/files/${id}`))
}

async function* formOf({ purpose, piece }: Kind, pieces: number): AsyncGenerator<Buffer> {
  const head = `--${BOUNDARY}\r\ncontent-disposition: form-data; name=`
  yield Buffer.from(`${head}"purpose"\r\n\r\n${purpose}\r\n`)
  yield Buffer.from(`${head}"file"; filename="a"\r\n\r\n`)
  for (let count = 0; count < pieces; count += 1) yield piece
  yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`)
}

async function download(service: BenchService, id: string): Promise<void> {
  const answer = await call(service, 'GET', `/files/${id}/content`)
  if (answer.statusCode !== 200) throw new Error(`the download was ${answer.statusCode}`)
  await drain(answer)
}

async function call(
  { url, headers }: BenchService,
  method: string,
  path: string,
  { headers: more = {}, body = Readable.from([]) }: { headers?: object; body?: Readable } = {},
): Promise<IncomingMessage> {
  const options = { method, agent, headers: { ...headers, ...more } }
  const sent = request(`${url}${path}`, options)
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve).once('error', reject)
  })
  await Promise.all([pipeline(body, sent), answered])
  return answered
}

async function drain(body: Readable): Promise<void> {
  let bytes = 0
  for await (const chunk of body as AsyncIterable<Buffer>) bytes += chunk.length
  if (bytes !== PIECES * MIB) throw new Error(`${bytes} bytes came back`)
}

/** The most that the API process has held in memory. */
function peakMib({ api }: BenchService): number {
  const status = readFileSync(`/proc/${api.pid}/status`, 'latin1')
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024
}
