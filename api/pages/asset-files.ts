import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { extname, join } from 'node:path'

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { isKnown } from '#api/http/stored-bytes.ts'

/** Scripts, styles and images of a page, held in memory. */
export interface AssetFiles {
  /** A digest of all content; it is part of each URL, so that files are immutable. */
  readonly version: string
  readonly files: ReadonlyMap<string, AssetFile>
}

interface AssetFile {
  readonly body: Buffer
  readonly contentType: string
  readonly etag: string
}

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml; charset=utf-8',
}
const SHARED_FOLDER = join(import.meta.dirname, 'assets')
const YEAR_SECONDS = 31_536_000

/** A file of a package that is served beside the files of a page. */
export interface PackageFile {
  /** The module name in imports. */
  readonly specifier: string
  /** The name under which it is served. */
  readonly name: string
  readonly path: string
}

/** The package that draws charts. */
export function findChartFiles(): readonly PackageFile[] {
  const { resolve } = createRequire(import.meta.url)
  const folder = resolve('uplot/package.json').replace(/package\.json$/, 'dist/')
  return [
    { specifier: 'uplot', name: 'uplot.js', path: `${folder}uPlot.esm.js` },
    { specifier: 'uplot/css', name: 'uplot.css', path: `${folder}uPlot.min.css` },
  ]
}

/**
 * Reads the files of a page, the files that all pages share, and those of packages; other file
 * types are ignored. Imports by package name become relative: browsers resolve them only with an
 * import map, which would have to be inline.
 */
export async function loadAssetFiles(
  folder: string,
  packages: readonly PackageFile[] = [],
): Promise<AssetFiles> {
  const files = new Map<string, AssetFile>()
  const whole = createHash('sha256')
  const names = new Map(packages.map(({ specifier, name }) => [specifier, name]))
  for (const { name, path } of [
    ...(await filesIn(SHARED_FOLDER)),
    ...(await filesIn(folder)),
    ...packages,
  ]) {
    const contentType = CONTENT_TYPES[extname(name)]
    if (contentType === undefined) continue
    const stored = await readFile(path)
    const body = names.size > 0 && name.endsWith('.js') ? withNames(stored, names) : stored
    const digest = createHash('sha256').update(body).digest('base64url')
    whole.update(`${name} ${digest}\n`)
    files.set(name, { body, contentType, etag: `"${digest.slice(0, 22)}"` })
  }
  return { version: whole.digest('hex').slice(0, 16), files }
}

async function filesIn(folder: string): Promise<{ name: string; path: string }[]> {
  return (await readdir(folder)).sort().map((name) => ({ name, path: join(folder, name) }))
}

const IMPORT = /(\bfrom\s*|\bimport\s*)(["'])([\w-]+(?:\/[\w-]+)?)\2/g

function withNames(body: Buffer, names: ReadonlyMap<string, string>): Buffer {
  const text = body.toString('utf8').replace(IMPORT, (whole, start, quote, specifier) => {
    const name = names.get(specifier)
    return name === undefined ? whole : `${start}${quote}./${name}${quote}`
  })
  return Buffer.from(text)
}

/** Serves the files below `<path>/<version>/`. */
export function registerAssets(app: FastifyInstance, path: string, assets: AssetFiles): void {
  app.get<{ Params: { version: string; name: string } }>(`${path}/:version/:name`, {
    schema: { hide: true },
    handler: async (request, reply) => {
      const { version, name } = request.params
      const file = assets.files.get(name)
      if (file === undefined) return reply.callNotFound()
      // During a rolling upgrade a page of one version may ask a process of another: its 404 must
      // not be cached.
      const isExact = version === assets.version
      reply.header(
        'cache-control',
        isExact ? `public, max-age=${YEAR_SECONDS}, immutable` : 'no-cache',
      )
      return sendTagged({ request, reply }, file)
    },
  })
}

/** Serves a page with revalidation: sent only when it has changed. */
export function sendPage(http: Http, body: string): FastifyReply {
  const digest = createHash('sha256').update(body).digest('base64url')
  http.reply.header('cache-control', 'no-cache')
  return sendTagged(http, {
    body: Buffer.from(body),
    contentType: 'text/html; charset=utf-8',
    etag: `"${digest.slice(0, 22)}"`,
  })
}

interface Http {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
}

function sendTagged({ request, reply }: Http, { body, contentType, etag }: AssetFile) {
  reply.header('etag', etag).type(contentType)
  const isUnchanged = isKnown(request.headers['if-none-match'], etag)
  return isUnchanged ? reply.code(304).send() : reply.send(body)
}
