import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import { failure, ServiceError } from '#shared/errors.ts'
import {
  type GuardedFetchOptions,
  isPublicHost,
  OutgoingError,
  openOutgoing,
} from '#shared/net/guarded-fetch.ts'

import type { ListedFile } from './choose-files.ts'
import { isPlainPath } from './manifest.ts'

/** A model hub with the file API of Hugging Face. */
export interface HubOptions {
  readonly endpoint: string
  /** Empty for anonymous access. */
  readonly accessToken: string
  /** The DNS lookup. */
  readonly resolve?: GuardedFetchOptions['resolve']
  /** Aborts its requests. */
  readonly signal?: AbortSignal | undefined
}

/** A file of a repository with the checksum that the hub states. */
export interface HubFile extends ListedFile {
  /** SHA-256 of large files, the SHA-1 of git's blob of small ones. */
  readonly checksum: { readonly kind: 'sha256' | 'git'; readonly hex: string }
}

/** A repository at one revision. */
export interface HubSource {
  readonly repository: string
  readonly revision: string
}

const REDIRECTS_MAX = 5
const TREE_PAGES_MAX = 50
const ANSWER_TIMEOUT_MS = 30_000
// A page of the hub has a thousand entries of some 500 bytes.
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
const FILES_MAX = 50_000
const ASKS_MAX = 3
const ASK_DELAY_SECONDS = 0.5
/** A hub that asks to wait longer than this counts as a refusal. */
const PATIENCE_SECONDS = 30

/** The hub is unreachable, so the cache has to suffice. */
export class HubUnreachableError extends ServiceError {
  constructor(endpoint: string, cause: unknown) {
    // The origin omits the user and password of the URL.
    const { origin } = new URL(endpoint)
    super('upstream', `the model hub ${origin} cannot be reached`, { cause })
    this.name = 'HubUnreachableError'
  }
}

/** Parses `hub:<owner>/<name>[@revision]`; the prefix is optional. */
export function parseHubSource(source: string): HubSource {
  const name = source.replace(/^hub:/, '')
  const at = name.includes('@') ? name.indexOf('@') : name.length
  const repository = name.slice(0, at)
  const revision = at < name.length ? name.slice(at + 1) : 'main'
  const isPlain = /^[\w.-]+\/[\w.-]+$/.test(repository) && isPlainPath(repository)
  if (!isPlain || !/^[\w./-]+$/.test(revision) || !isPlainPath(revision)) {
    throw failure.invalidRequest(`"${source}" is not a repository such as owner/name@revision`)
  }
  return { repository, revision }
}

/** The current commit of a branch or tag. */
export async function resolveRevision(hub: HubOptions, source: HubSource): Promise<string> {
  const path = `/api/models/${source.repository}/revision/${encodeURIComponent(source.revision)}`
  const { body } = await getJson(hub, new URL(baseOf(hub) + path), source)
  const { sha } = (body ?? {}) as { sha?: unknown }
  if (typeof sha === 'string' && /^[0-9a-f]{40}$/.test(sha)) return sha
  throw failure.upstream(`the hub names no commit for ${source.repository}@${source.revision}`)
}

/** Every file of a repository at a commit. */
export async function listHubFiles(
  hub: HubOptions,
  source: HubSource,
  commit: string,
): Promise<readonly HubFile[]> {
  const files: HubFile[] = []
  let url: URL | undefined = new URL(
    `${baseOf(hub)}/api/models/${source.repository}/tree/${commit}?recursive=true`,
  )
  for (let page = 0; url !== undefined; page++) {
    if (page >= TREE_PAGES_MAX) throw failure.upstream(`${source.repository} has too many files`)
    const { body, next } = await getJson(hub, url, source)
    if (!Array.isArray(body)) throw failure.upstream('the hub sent no list of files')
    if (files.length + body.length > FILES_MAX) {
      throw failure.upstream(`${source.repository} has too many files`)
    }
    files.push(...body.flatMap(parseTreeEntry))
    url = next
  }
  return files
}

/** Opens a file at byte `offset`. The answer shows whether the server honours the offset. */
export async function openHubFile(
  hub: HubOptions,
  source: HubSource & { readonly commit: string; readonly path: string },
  options: { readonly offset: number; readonly signal: AbortSignal },
): Promise<Response> {
  const path = source.path.split('/').map(encodeURIComponent).join('/')
  const url = new URL(`${baseOf(hub)}/${source.repository}/resolve/${source.commit}/${path}`)
  const headers: Record<string, string> = { 'accept-encoding': 'identity' }
  if (options.offset > 0) headers.range = `bytes=${options.offset}-`
  const response = await request(hub, url, { headers, signal: options.signal })
  if (response.ok || response.status === 416) return response
  await response.body?.cancel()
  throw refusalOf(response, source)
}

/** Retries if the hub is too busy; other errors would not change soon. */
async function getJson(
  hub: HubOptions,
  url: URL,
  source: HubSource,
): Promise<{ body: unknown; next: URL | undefined }> {
  for (let asked = 1; ; asked++) {
    try {
      return await askJson(hub, url, source)
    } catch (error) {
      const delaySeconds = delayFor(error, ASK_DELAY_SECONDS * asked)
      if (delaySeconds === undefined || asked >= ASKS_MAX) throw error
      await sleep(delaySeconds * 1000, undefined, hub.signal && { signal: hub.signal })
    }
  }
}

/** Seconds until a busy hub should be queried again, or undefined if a retry is useless. */
export function delayFor(error: unknown, usual: number): number | undefined {
  if (!(error instanceof ServiceError) || error.kind !== 'overloaded') return undefined
  const delaySeconds = Math.max(error.retryAfterSeconds ?? 0, usual)
  return delaySeconds <= PATIENCE_SECONDS ? delaySeconds : undefined
}

async function askJson(
  hub: HubOptions,
  url: URL,
  source: HubSource,
): Promise<{ body: unknown; next: URL | undefined }> {
  const timeout = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
  const signal = hub.signal === undefined ? timeout : AbortSignal.any([hub.signal, timeout])
  const response = await request(hub, url, { headers: { accept: 'application/json' }, signal })
  if (!response.ok) {
    await response.body?.cancel()
    throw refusalOf(response, source)
  }
  return { body: await readJson(hub, response), next: nextPage(hub, response, url) }
}

async function readJson(hub: HubOptions, response: Response): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength
      if (bytes > ANSWER_BYTES_MAX) throw failure.upstream('the answer of the hub is too long')
      chunks.push(chunk)
    }
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw new HubUnreachableError(hub.endpoint, error)
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'))
  } catch (error) {
    throw failure.upstream('the answer of the hub is not JSON', { cause: error })
  }
}

/**
 * Follows redirects manually: the access token is sent only to the hub, never to its file servers,
 * and a hub on the public internet cannot redirect into this network. A private hub may redirect
 * anywhere.
 */
async function request(
  hub: HubOptions,
  first: URL,
  init: { readonly headers: Record<string, string>; readonly signal: AbortSignal },
): Promise<Response> {
  let url = first
  for (let hop = 0; hop <= REDIRECTS_MAX; hop++) {
    const isHub = url.origin === new URL(hub.endpoint).origin
    const headers: Record<string, string> = { ...init.headers, 'user-agent': 'millrace' }
    if (isHub && hub.accessToken !== '') headers.authorization = `Bearer ${hub.accessToken}`
    const response = await send(hub, url, { headers, signal: init.signal })
    const location = response.headers.get('location')
    if (response.status < 300 || response.status >= 400 || location === null) return response
    await response.body?.cancel()
    const next = URL.parse(location, url.href)
    if (next === null || !/^https?:$/.test(next.protocol)) {
      throw failure.upstream('the hub redirects to an invalid address')
    }
    url = next
  }
  throw failure.upstream('the hub redirects in circles')
}

async function send(
  hub: HubOptions,
  url: URL,
  init: { readonly headers: Record<string, string>; readonly signal: AbortSignal },
): Promise<Response> {
  const endpoint = new URL(hub.endpoint)
  try {
    const allowsPrivateAddresses =
      url.origin === endpoint.origin || !(await isPublicHost(endpoint, hub.resolve))
    return responseOf(await openOutgoing({ ...resolverOf(hub), allowsPrivateAddresses }, url, init))
  } catch (error) {
    if (error instanceof OutgoingError && error.reason === 'address') {
      throw failure.upstream('the hub redirects into this network', { cause: error })
    }
    throw new HubUnreachableError(hub.endpoint, error)
  }
}

const resolverOf = ({ resolve }: HubOptions): Pick<GuardedFetchOptions, 'resolve'> =>
  resolve === undefined ? {} : { resolve }

function responseOf(message: IncomingMessage): Response {
  const { statusCode: status = 0 } = message
  const headers = Object.entries(message.headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((one): [string, string] => [name, one]),
  )
  // These statuses have no body.
  const isEmpty = [204, 205, 304].includes(status)
  if (isEmpty) message.resume()
  const body = isEmpty ? null : (Readable.toWeb(message) as unknown as ReadableStream<Uint8Array>)
  return new Response(body, { status, headers })
}

function refusalOf(response: Response, source: HubSource): ServiceError {
  const name = `${source.repository}@${source.revision}`
  if (response.status === 401 || response.status === 403) {
    return failure.accessDenied(
      `the hub refuses ${name}: it does not exist, or HF_TOKEN must hold a token that may read it`,
    )
  }
  if (response.status === 404) return failure.notFound(`the hub has no ${name}`)
  if (response.status === 429 || response.status >= 500) {
    // A date is not supported, so the default delay applies.
    const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN)
    return failure.overloaded(`the hub answers ${response.status} for ${name}`, {
      ...(retryAfter >= 0 && { retryAfterSeconds: retryAfter }),
    })
  }
  return failure.upstream(`the hub answers ${response.status} for ${name}`)
}

/** Pages of a long listing are linked; a link to another host is not followed. */
function nextPage(hub: HubOptions, response: Response, url: URL): URL | undefined {
  const link = /<([^>]+)>;\s*rel="?next"?/.exec(response.headers.get('link') ?? '')?.[1]
  if (link === undefined) return undefined
  const next = URL.parse(link, url.href)
  return next?.origin === new URL(hub.endpoint).origin ? next : undefined
}

function parseTreeEntry(entry: unknown): HubFile[] {
  const { type, path, size, oid, lfs } = (entry ?? {}) as Record<string, unknown>
  if (type !== 'file') return []
  const large = lfs as { oid?: unknown; sha256?: unknown; size?: unknown } | undefined
  const hex = large === undefined || large === null ? oid : (large.oid ?? large.sha256)
  const bytes = large?.size ?? size
  // A model needs no name that some file system refuses.
  if (typeof path === 'string' && !isPlainPath(path)) return []
  const isWell =
    typeof path === 'string' &&
    Number.isSafeInteger(bytes) &&
    (bytes as number) >= 0 &&
    /^(sha256:)?([0-9a-f]{40}|[0-9a-f]{64})$/.test(`${hex}`)
  if (!isWell) throw failure.upstream('the hub lists a file that makes no sense')
  const plain = `${hex}`.replace('sha256:', '')
  const kind = plain.length === 64 ? 'sha256' : 'git'
  return [{ path, bytes: bytes as number, checksum: { kind, hex: plain } }]
}

function baseOf({ endpoint }: HubOptions): string {
  return endpoint.replace(/\/+$/, '')
}
