// An encoded word of mail headers (RFC 2047).
const ENCODED_WORD = /^=\?utf-8\?b\?([a-z0-9+/]*={0,2})\?=$/i

/**
 * The name of an uploaded file, without folders. .NET clients encode non-ASCII names as mail does,
 * `=?utf-8?B?…?=`; browsers, curl and httpx encode only the quotation mark, as `%22`.
 */
export function fileNameOf(stated: string): string {
  const word = ENCODED_WORD.exec(stated)?.[1]
  const name =
    word === undefined ? stated.replaceAll('%22', '"') : Buffer.from(word, 'base64').toString()
  const last = name.slice(Math.max(name.lastIndexOf('/'), name.lastIndexOf('\\')) + 1)
  return last === '.' || last === '..' ? '' : last
}
