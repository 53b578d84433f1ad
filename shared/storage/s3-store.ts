import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3'

import type { StorageConfig } from '#shared/config/infra.ts'
import { failure } from '#shared/errors.ts'

import { assertPlainKey, type ObjectInfo, type ObjectStore, STAGED } from './object-store.ts'
import { explainBucketFault } from './s3-check.ts'
import { translateFaults, watchForSilence } from './s3-faults.ts'
import { dropLeftover, listLeftovers } from './s3-leftovers.ts'
import { PartBuffers, type S3Target, S3Upload } from './s3-upload.ts'

const LOOPBACK: readonly string[] = ['localhost', '127.0.0.1', '[::1]']
const CONNECT_TIMEOUT_MS = 3000
// The time limit without any byte in either direction; a transfer may have any size.
const SILENCE_MS = 30_000

interface S3Connection {
  readonly client: S3Client
  readonly buffers: PartBuffers
}

/** An object store behind the S3 protocol. */
export function openS3Store(
  config: StorageConfig & { readonly driver: 's3' },
  silenceMs = SILENCE_MS,
): ObjectStore {
  const client = new S3Client({
    endpoint: config.endpoint,
    region: config.region,
    credentials: { accessKeyId: config.accessKeyId, secretAccessKey: config.secretAccessKey },
    forcePathStyle: config.isPathStyle,
    // Servers other than Amazon's store trailing checksums as part of the object.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    maxAttempts: 3,
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, socketTimeout: silenceMs },
  })
  translateFaults(client)
  if (isProtected(new URL(config.endpoint))) leaveBodiesUnsigned(client)
  const connection = { client, buffers: new PartBuffers() }
  const at = (key: string) => {
    assertPlainKey(key)
    return { Bucket: config.bucket, Key: key }
  }
  return {
    put(key, body, { contentType, signal } = {}) {
      const type = contentType === undefined ? {} : { ContentType: contentType }
      return put(connection, { ...at(key), ...type }, body, signal)
    },
    async get(key, range) {
      const Range = range === undefined ? undefined : `bytes=${range.start}-${range.end ?? ''}`
      const answer = await client
        .send(new GetObjectCommand({ ...at(key), ...(Range !== undefined && { Range }) }))
        .catch(translateMissing)
      const total = answer.ContentRange?.split('/')[1] ?? answer.ContentLength
      const body = watchForSilence(answer.Body as IncomingMessage, silenceMs)
      return { body, totalBytes: Number(total) }
    },
    async head(key) {
      const answer = await client.send(new HeadObjectCommand(at(key))).catch(missingAsUndefined)
      if (answer === undefined) return undefined
      return {
        key,
        bytes: answer.ContentLength ?? 0,
        modifiedAtMs: answer.LastModified?.getTime() ?? 0,
      }
    },
    async delete(key) {
      if (key.startsWith(STAGED)) return dropLeftover(client, config.bucket, key)
      await client.send(new DeleteObjectCommand(at(key)))
    },
    list: (prefix) =>
      prefix === STAGED
        ? listLeftovers(client, config.bucket)
        : list(client, config.bucket, prefix),
    async check() {
      const found = client.send(new HeadBucketCommand({ Bucket: config.bucket }))
      await found.catch(async (error: Error) => {
        throw await explainBucketFault(client, config.bucket, error)
      })
    },
    close: () => client.destroy(),
  }
}

async function put(
  { client, buffers }: S3Connection,
  target: S3Target,
  body: Readable | Buffer,
  signal: AbortSignal | undefined,
): Promise<{ bytes: number }> {
  if (Buffer.isBuffer(body)) {
    const options = signal === undefined ? {} : { abortSignal: signal }
    await client.send(new PutObjectCommand({ ...target, Body: body }), options)
    return { bytes: body.length }
  }
  const upload = new S3Upload(client, target, buffers)
  await pipeline(body, upload, signal === undefined ? {} : { signal })
  return { bytes: upload.bytes }
}

/** Whether the connection protects bodies against modification: https or loopback. */
function isProtected({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || LOOPBACK.includes(hostname)
}

/** Leaves bodies unsigned: hashing every byte costs as much as sending it. */
function leaveBodiesUnsigned(client: S3Client): void {
  client.middlewareStack.add(
    (next) => (call) => {
      const { headers } = call.request as { headers: Record<string, string> }
      headers['x-amz-content-sha256'] = 'UNSIGNED-PAYLOAD'
      return next(call)
    },
    { step: 'build', name: 'leaveBodiesUnsigned' },
  )
}

async function* list(client: S3Client, bucket: string, prefix: string): AsyncGenerator<ObjectInfo> {
  let ContinuationToken: string | undefined
  do {
    const page = await client.send(
      new ListObjectsV2Command({
        Bucket: bucket,
        Prefix: prefix,
        ...(ContinuationToken !== undefined && { ContinuationToken }),
      }),
    )
    for (const { Key, Size, LastModified } of page.Contents ?? []) {
      if (Key !== undefined) {
        yield { key: Key, bytes: Size ?? 0, modifiedAtMs: LastModified?.getTime() ?? 0 }
      }
    }
    ContinuationToken = page.NextContinuationToken
  } while (ContinuationToken !== undefined)
}

function isMissing(error: unknown): boolean {
  const name = (error as { name?: string }).name
  return name === 'NoSuchKey' || name === 'NotFound'
}

function translateMissing(error: unknown): never {
  if (isMissing(error)) throw failure.notFound('No such object.', { cause: error })
  throw error
}

function missingAsUndefined(error: unknown): undefined {
  if (isMissing(error)) return undefined
  throw error
}
