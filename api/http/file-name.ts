// One word as mail headers have it (RFC 2047).
const ENCODED_WORD = /^=\?utf-8\?b\?([a-z0-9+/]*={0,2})\?=$/i

/**
 * The name of an uploaded file, without folders. Clients written with .NET state names that are not ASCII as
 * mail does, `=?utf-8?B?…?=`; browsers, curl and httpx write a quotation mark as `%22`, and nothing else so.
 */
export function fileNameOf(stated: string): string {
  const word = ENCODED_WORD.exec(stated)?.[1]
  const name =
    word === undefined ? stated.replaceAll('%22', '"') : Buffer.from(word, 'base64').toString()
  const last = name.slice(Math.max(name.lastIndexOf('/'), name.lastIndexOf('\\')) + 1)
  return last === '.' || last === '..' ? '' : last
}
