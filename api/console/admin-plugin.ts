import { join } from 'node:path'

import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyPluginAsync } from 'fastify'

import { type AssetFiles, loadAssetFiles, registerAssets } from '#api/pages/asset-files.ts'
import { wayToRoot } from '#api/pages/html.ts'
import { registerPageHeaders } from '#api/pages/page-headers.ts'

import { viewOf } from './assets/admin-view.js'
import { formSecret } from './cookies.ts'
import { createDashboardHook, type DashboardGuard, sessionOf } from './guard.ts'
import { createOverview, type OverviewServices } from './overview.ts'
import { renderOverview } from './overview-page.ts'
import { type QueueBoardServices, registerQueueBoard } from './queue-board.ts'
import { type CheckPassword, registerSignIn, signInPage } from './sign-in.ts'

interface AdminServices extends OverviewServices, QueueBoardServices {
  readonly guard: DashboardGuard
  readonly checkPassword: CheckPassword
}

/**
 * The console: the overview at `/admin`, the jobs at `/admin/queues`, and the sign-in. Read-only:
 * every change goes through the API.
 */
export function adminPlugin(services: AdminServices): FastifyPluginAsync {
  return async (app) => {
    const assets = await loadAssetFiles(join(import.meta.dirname, 'assets'))
    const showSignIn = signInPage({ ...services, assets })
    await app.register(cookie)
    await app.register(async (open) => {
      registerPageHeaders(open, { usesMicrophone: false })
      registerAssets(open, '/assets', assets)
      registerSignIn(open, { ...services, assets })
    })
    await app.register(async (guarded) => {
      registerPageHeaders(guarded, { usesMicrophone: false })
      guarded.addHook('onRequest', createDashboardHook(services.guard, showSignIn))
      registerOverview(guarded, services, assets)
    })
    await app.register(
      async (guarded) => {
        // The queue board sets its own headers for signed-in administrators.
        guarded.addHook('onRequest', createDashboardHook(services.guard, showSignIn))
        await registerQueueBoard(guarded, services, assets.version)
      },
      { prefix: '/queues' },
    )
  }
}

function registerOverview(app: FastifyInstance, services: AdminServices, assets: AssetFiles): void {
  const overview = createOverview(services)
  app.get('/overview.json', { schema: { hide: true } }, async () => overview())
  app.get('/', { schema: { hide: true } }, async (request, reply) => {
    const session = await sessionOf(services.guard, request)
    const page = renderOverview({
      root: wayToRoot(request.url),
      view: viewOf(await overview()),
      assets,
      session: session && { name: session.name, formSecret: formSecret(request, reply) },
    })
    return reply.type('text/html; charset=utf-8').send(page)
  })
}
