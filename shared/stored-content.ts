import { promisify } from 'node:util'
import { gunzip, gzip, gzipSync } from 'node:zlib'

import { type ContentCipher, readContent } from './queue/content-cipher.ts'

/**
 * Maximum bytes of decompressed stored content that one request reads, the same as for a body.
 * Compressed rows of a few kilobytes may exceed it.
 */
export const CONTENTS_BYTES_MAX = 8 * 1024 * 1024

const compress = promisify(gzip)
const expand = promisify(gunzip)
/** Content up to this length is compressed faster than it can be sent to a thread and back. */
const INLINE_BYTES_MAX = 4096

/**
 * Packs the content of a stored row: compressed and, if the installation has a key, encrypted. The
 * context names the row, so content cannot be moved to another row.
 */
export async function packContent(
  plain: string | Buffer,
  cipher: ContentCipher | undefined,
  context: string,
): Promise<Buffer> {
  const compressed = plain.length > INLINE_BYTES_MAX ? await compress(plain) : gzipSync(plain)
  return cipher === undefined ? compressed : cipher.encrypt(compressed, context)
}

/** Throws when no key of the installation fits, or when the content belongs to another row. */
export async function unpackContent(
  packed: Buffer,
  cipher: ContentCipher | undefined,
  context: string,
): Promise<Buffer>
/** The same; undefined when the content has more than `bytesMax` bytes. */
export async function unpackContent(
  packed: Buffer,
  cipher: ContentCipher | undefined,
  context: string,
  bytesMax: number | undefined,
): Promise<Buffer | undefined>
export async function unpackContent(
  packed: Buffer,
  cipher: ContentCipher | undefined,
  context: string,
  bytesMax?: number,
): Promise<Buffer | undefined> {
  const compressed = readContent(packed, cipher, context)
  try {
    return await expand(compressed, bytesMax === undefined ? {} : { maxOutputLength: bytesMax })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') return undefined
    throw error
  }
}

// The first character in base64 of an encrypted message, which no JSON text begins with.
const SEALED = /^A/

/** JSON text for a text column, encrypted as base64 where the installation has a key. */
export function sealText(json: string, cipher: ContentCipher | undefined, context: string): string {
  return cipher?.encrypt(json, context).toString('base64') ?? json
}

/** Reverses `sealText`; also reads clear text of an earlier release. */
export function openText(
  stored: string,
  cipher: ContentCipher | undefined,
  context: string,
): string {
  if (!SEALED.test(stored)) return stored
  return readContent(Buffer.from(stored, 'base64'), cipher, context).toString('utf8')
}
