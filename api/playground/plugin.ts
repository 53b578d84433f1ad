import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { FastifyPluginAsync } from 'fastify'

import { findChartFiles, loadAssetFiles, registerAssets, sendPage } from '#api/pages/asset-files.ts'
import { prefersHtml, wayToRoot } from '#api/pages/html.ts'
import { registerPageHeaders } from '#api/pages/page-headers.ts'

const FOLDER = join(import.meta.dirname, 'assets')

/**
 * The playground: a page at `/` to try every endpoint. It uses the public API, so the page itself
 * needs no credential and holds no data.
 */
export function playgroundPlugin({ version }: { readonly version: string }): FastifyPluginAsync {
  return async (app) => {
    const assets = await loadAssetFiles(FOLDER, findChartFiles())
    const template = await readFile(join(FOLDER, 'index.html'), 'utf8')
    const page = template.replaceAll('{{assets}}', `playground/${assets.version}`)
    registerPageHeaders(app, { usesMicrophone: true })
    registerAssets(app, '/playground', assets)
    app.get('/', { schema: { hide: true } }, async (request, reply) => {
      reply.header('vary', 'accept')
      if (prefersHtml(request.headers.accept)) return sendPage({ request, reply }, page)
      return reply.type('application/json; charset=utf-8').send(JSON.stringify(pointers(version)))
    })
    for (const path of ['/playground', '/playground/']) {
      app.get(path, { schema: { hide: true } }, async (request, reply) =>
        reply.redirect(wayToRoot(request.url), 308),
      )
    }
  }
}

/** The answer for programs at the root: the list of entry points. */
function pointers(version: string): object {
  return {
    name: 'Millrace',
    version,
    api: '/v1',
    users: '/auth/v1',
    documentation: '/docs',
    openapi: '/openapi.json',
    health: '/readyz',
    playground: 'the same address, asked for as text/html',
  }
}
