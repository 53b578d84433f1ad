import { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'

import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3'
import { Upload } from '@aws-sdk/lib-storage'

import type { StorageConfig } from '../config/infra.ts'
import { failure } from '../errors.ts'
import {
  assertPlainKey,
  type ObjectInfo,
  type ObjectStore,
  type PutOptions,
} from './object-store.ts'

// The smallest that S3 takes: what is in flight is held in memory.
const PART_BYTES = 5 * 1024 * 1024
const PARTS_IN_FLIGHT = 2
const CONNECT_TIMEOUT_MS = 3000
const REQUEST_TIMEOUT_MS = 60_000

/** An object store behind the S3 protocol. */
export function openS3Store(config: StorageConfig & { readonly driver: 's3' }): ObjectStore {
  const client = new S3Client({
    endpoint: config.endpoint,
    region: config.region,
    credentials: { accessKeyId: config.accessKeyId, secretAccessKey: config.secretAccessKey },
    forcePathStyle: true,
    // Other servers than Amazon's store the trailing checksums as part of the object.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    maxAttempts: 3,
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
  })
  const at = (key: string) => {
    assertPlainKey(key)
    return { Bucket: config.bucket, Key: key }
  }
  return {
    put: (key, body, options) => put(client, at(key), body, options),
    async get(key, range) {
      const Range = range === undefined ? undefined : `bytes=${range.start}-${range.end ?? ''}`
      const answer = await client
        .send(new GetObjectCommand({ ...at(key), ...(Range !== undefined && { Range }) }))
        .catch(translateMissing)
      const total = answer.ContentRange?.split('/')[1] ?? answer.ContentLength
      return { body: answer.Body as Readable, totalBytes: Number(total) }
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
      await client.send(new DeleteObjectCommand(at(key)))
    },
    list: (prefix) => list(client, config.bucket, prefix),
    async check() {
      await client.send(new HeadBucketCommand({ Bucket: config.bucket }))
    },
    close: () => client.destroy(),
  }
}

async function put(
  client: S3Client,
  target: { Bucket: string; Key: string },
  body: Readable | Buffer,
  options: PutOptions = {},
): Promise<{ bytes: number }> {
  let bytes = 0
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      done(null, chunk)
    },
  })
  const upload = new Upload({
    client,
    params: {
      ...target,
      Body: counted,
      ...(options.contentType !== undefined && { ContentType: options.contentType }),
    },
    partSize: PART_BYTES,
    queueSize: PARTS_IN_FLIGHT,
    leavePartsOnError: false,
  })
  const source = Buffer.isBuffer(body) ? Readable.from([body]) : body
  const feeding = pipeline(
    source,
    counted,
    options.signal === undefined ? {} : { signal: options.signal },
  )
  // A source that breaks off must abort the upload, or the store would publish the part it got.
  const guarded = feeding.catch(async (error: unknown) => {
    await upload.abort()
    throw error
  })
  await Promise.all([guarded, upload.done()])
  return { bytes }
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
