import {
  AbortMultipartUploadCommand,
  ListMultipartUploadsCommand,
  type S3Client,
} from '@aws-sdk/client-s3'

import { type ObjectInfo, OWN_PREFIXES, STAGED } from './object-store.ts'

/** Errors of servers that cannot list uploads or that forbid it. */
const UNLISTED: readonly (number | undefined)[] = [400, 403, 405, 501]

/**
 * Incomplete multipart uploads of this service, each under `STAGED`. Their parts use space but
 * appear in no object listing.
 */
export async function* listLeftovers(client: S3Client, bucket: string): AsyncGenerator<ObjectInfo> {
  for (const prefix of OWN_PREFIXES) yield* listBelow(client, bucket, prefix)
}

async function* listBelow(
  client: S3Client,
  bucket: string,
  prefix: string,
): AsyncGenerator<ObjectInfo> {
  let marker = {}
  for (;;) {
    const page = await client
      .send(new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: prefix, ...marker }))
      .catch((error: { readonly $metadata?: { readonly httpStatusCode?: number } }) => {
        if (UNLISTED.includes(error.$metadata?.httpStatusCode)) return undefined
        throw error
      })
    for (const { Key, UploadId, Initiated } of page?.Uploads ?? []) {
      if (Key === undefined || UploadId === undefined || Initiated === undefined) continue
      // Some servers ignore the prefix and list everything.
      if (!Key.startsWith(prefix)) continue
      const name = Buffer.from(JSON.stringify([Key, UploadId])).toString('base64url')
      yield { key: STAGED + name, bytes: 0, modifiedAtMs: Initiated.getTime() }
    }
    if (page?.IsTruncated !== true || page.NextKeyMarker === undefined) return
    marker = { KeyMarker: page.NextKeyMarker, UploadIdMarker: page.NextUploadIdMarker }
  }
}

/** Aborts an upload by the name that `listLeftovers` returned; a finished one is not an error. */
export async function dropLeftover(client: S3Client, bucket: string, key: string): Promise<void> {
  const name = Buffer.from(key.slice(STAGED.length), 'base64url').toString()
  const [Key, UploadId] = JSON.parse(name) as [string, string]
  await client
    .send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }))
    .catch((error: Error) => {
      if (error.name !== 'NoSuchUpload') throw error
    })
}
