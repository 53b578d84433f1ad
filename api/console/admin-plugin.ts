import { createRequire } from 'node:module'
import { join } from 'node:path'

import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'

import {
  type AssetFiles,
  findChartFiles,
  loadAssetFiles,
  type PackageFile,
  registerAssets,
} from '#api/pages/asset-files.ts'
import { wayToRoot } from '#api/pages/html.ts'
import { registerPageHeaders } from '#api/pages/page-headers.ts'

import { administratorOf } from './access.ts'
import { type ConsoleArea, type RecordAction, registerConsoleApi } from './api.ts'
import { viewOf } from './assets/admin-view.js'
import { type ConsoleGuard, createConsoleHook } from './guard.ts'
import { createOverview, type OverviewServices, sampleOf } from './overview.ts'
import { renderOverview } from './overview-page.ts'
import { navigation, registerPages, sessionBar } from './pages.ts'
import { type QueueBoardServices, registerQueueBoard } from './queue-board.ts'
import type { SeriesLog } from './series-log.ts'
import { type CheckPassword, registerSignIn, signInPage } from './sign-in.ts'

interface AdminServices extends OverviewServices, QueueBoardServices {
  readonly guard: ConsoleGuard
  readonly checkPassword: CheckPassword
  /** The areas of the console's API. */
  readonly areas: readonly ConsoleArea[]
  readonly audit: RecordAction
  readonly series: SeriesLog
}

/**
 * The console: the overview at `/admin`, its pages below `/admin/console` and their API below
 * `/admin/api`, the raw jobs at `/admin/queues`, and the sign-in.
 */
export function adminPlugin(services: AdminServices): FastifyPluginAsync {
  return async (app) => {
    const assets = await loadAssetFiles(join(import.meta.dirname, 'assets'), findComponentFiles())
    const showSignIn = signInPage({ ...services, assets })
    await app.register(cookie)
    await app.register(async (open) => {
      registerPageHeaders(open, { usesMicrophone: false })
      registerAssets(open, '/assets', assets)
      registerSignIn(open, { ...services, assets })
    })
    await app.register(async (guarded) => {
      registerPageHeaders(guarded, { usesMicrophone: false })
      const admit = createConsoleHook(services.guard, showSignIn)
      guarded.addHook('onRequest', admit)
      // The body of an action may arrive minutes after its headers.
      guarded.addHook('preValidation', async (request, reply) =>
        request.method === 'GET' ? undefined : admit(request, reply),
      )
      registerOverview(guarded, services, assets)
      registerPages(guarded, assets)
      await guarded.register(
        async (api) => registerConsoleApi(api, services.areas, services.audit),
        { prefix: '/api' },
      )
    })
    await app.register(
      async (guarded) => {
        // The queue board sets its own headers for signed-in administrators.
        guarded.addHook('onRequest', createConsoleHook(services.guard, showSignIn))
        registerQueueBoard(guarded, services, assets.version)
      },
      { prefix: '/queues' },
    )
  }
}

function registerOverview(app: FastifyInstance, services: AdminServices, assets: AssetFiles): void {
  const overview = createOverview(services)
  services.series.startSampling(async () => sampleOf(await overview()))
  app.get('/overview.json', { schema: { hide: true } }, async () => overview())
  app.get('/', { schema: { hide: true } }, async (request, reply) => {
    const root = wayToRoot(request.url)
    const page = renderOverview({
      root,
      assets,
      view: viewOf(await overview()),
      bar: sessionBar(request, reply, root),
      navigation: navigation(administratorOf(request), root, 'overview'),
    })
    return reply.type('text/html; charset=utf-8').send(page)
  })
}

const { resolve } = createRequire(import.meta.url)

/** The packages of the console's pages: components, templates and charts. */
function findComponentFiles(): readonly PackageFile[] {
  const htm = resolve('htm').replace(/[^/]*$/, '')
  return [
    { specifier: 'preact', name: 'preact.js', path: resolve('preact') },
    { specifier: 'preact/hooks', name: 'preact-hooks.js', path: resolve('preact/hooks') },
    { specifier: 'htm', name: 'htm.js', path: `${htm}htm.module.js` },
    ...findChartFiles(),
  ]
}
