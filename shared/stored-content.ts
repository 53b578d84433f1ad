import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'

import { type ContentCipher, readContent } from './queue/content-cipher.ts'

const compress = promisify(gzip)
const expand = promisify(gunzip)

/**
 * The content of a stored row: compressed and, where the installation has a key, encrypted. The
 * context names the row; content cannot be moved to another one.
 */
export async function packContent(
  plain: string | Buffer,
  cipher: ContentCipher | undefined,
  context: string,
): Promise<Buffer> {
  const compressed = await compress(plain)
  return cipher === undefined ? compressed : cipher.encrypt(compressed, context)
}

/** Throws when no key of the installation fits, or when the content belongs to another row. */
export async function unpackContent(
  packed: Buffer,
  cipher: ContentCipher | undefined,
  context: string,
): Promise<Buffer> {
  return expand(readContent(packed, cipher, context))
}
