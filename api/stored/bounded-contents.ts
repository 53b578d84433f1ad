import { failure, type ServiceError } from '#shared/errors.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { CONTENTS_BYTES_MAX, unpackContent } from '#shared/stored-content.ts'

/** A row without its content. */
export interface ContentKey {
  readonly id: string
  /** Bytes as stored. */
  readonly bytes: number
}

/** The ids of the first rows within the limit as stored, at least one. */
export function idsWithin(keys: readonly ContentKey[]): string[] {
  let sum = 0
  const end = keys.findIndex(({ bytes }, index) => {
    sum += bytes
    return index > 0 && sum > CONTENTS_BYTES_MAX
  })
  return keys.slice(0, end === -1 ? keys.length : end).map(({ id }) => id)
}

/** The contents of the first rows within the limit after decompression, at least one. */
export async function openWithin<Row extends { readonly content: Buffer }>(
  rows: readonly Row[],
  { cipher, contextOf }: { cipher: ContentCipher | undefined; contextOf(row: Row): string },
): Promise<{ readonly row: Row; readonly text: string }[]> {
  const opened: { readonly row: Row; readonly text: string }[] = []
  let left = CONTENTS_BYTES_MAX
  for (const row of rows) {
    const bytesMax = opened.length === 0 ? undefined : left
    const plain = await unpackContent(row.content, cipher, contextOf(row), bytesMax)
    if (plain === undefined) break
    opened.push({ row, text: plain.toString('utf8') })
    left -= plain.length
    if (left <= 0) break
  }
  return opened
}

/** The total characters of decrypted content. */
export function lengthOf(opened: readonly { readonly text: string }[]): number {
  return opened.reduce((sum, { text }) => sum + text.length, 0)
}

/** The error for requests that continue more content than one request may read. */
export function tooLargeToContinue(param: string): ServiceError {
  return failure.invalidRequest(
    `Invalid '${param}': the content that it continues is too large; at most ${CONTENTS_BYTES_MAX} bytes may be continued.`,
    { param, code: 'context_length_exceeded' },
  )
}
