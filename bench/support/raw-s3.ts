import type { Readable } from 'node:stream'

import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3'

const KEY = 'bench-raw'
// As the service sends a file whose length it cannot know.
const PART_BYTES = 5 * 1024 * 1024
const CONCURRENCY = 3

/** Where an S3 server is, as the settings of the service name it. */
export type S3Settings = Readonly<
  Record<
    'S3_ENDPOINT' | 'S3_BUCKET' | 'S3_REGION' | 'S3_ACCESS_KEY_ID' | 'S3_SECRET_ACCESS_KEY',
    string
  >
>

/** Straight to and from an S3 server with its vendor's client; bodies lie ready in memory. */
export interface RawS3 {
  put(body: Buffer): Promise<void>
  putInParts(body: Buffer): Promise<void>
  get(): Promise<Readable>
  close(): void
}

/**
 * Opens the vendor's client. It signs bodies, that is counts their SHA-256, as it does by default.
 */
export function openRawS3(settings: S3Settings): RawS3 {
  const client = new S3Client({
    endpoint: settings.S3_ENDPOINT,
    region: settings.S3_REGION,
    forcePathStyle: true,
    credentials: {
      accessKeyId: settings.S3_ACCESS_KEY_ID,
      secretAccessKey: settings.S3_SECRET_ACCESS_KEY,
    },
    requestChecksumCalculation: 'WHEN_REQUIRED',
  })
  const place = { Bucket: settings.S3_BUCKET, Key: KEY }
  return {
    async put(body) {
      await client.send(new PutObjectCommand({ ...place, Body: body }))
    },
    async putInParts(body) {
      const { UploadId } = await client.send(new CreateMultipartUploadCommand(place))
      const Parts: { PartNumber: number; ETag: string | undefined }[] = []
      const count = Math.ceil(body.length / PART_BYTES)
      const transfer = async (): Promise<void> => {
        while (Parts.length < count) {
          const part = { PartNumber: Parts.length + 1, ETag: undefined as string | undefined }
          Parts.push(part)
          const start = (part.PartNumber - 1) * PART_BYTES
          const Body = body.subarray(start, start + PART_BYTES)
          const { PartNumber } = part
          const sent = await client.send(
            new UploadPartCommand({ ...place, UploadId, PartNumber, Body }),
          )
          part.ETag = sent.ETag
        }
      }
      await Promise.all(Array.from({ length: CONCURRENCY }, transfer))
      const end = { ...place, UploadId, MultipartUpload: { Parts } }
      await client.send(new CompleteMultipartUploadCommand(end))
    },
    async get() {
      const { Body } = await client.send(new GetObjectCommand(place))
      return Body as Readable
    },
    close: () => client.destroy(),
  }
}
