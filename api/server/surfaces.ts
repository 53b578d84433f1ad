import type { FastifyInstance } from 'fastify'

import type { SurfaceName } from '#shared/config/server.ts'

import type { Surface } from './app.ts'
import type { Services } from './services.ts'
import type { UserServer } from './user-server.ts'

/** The surfaces of a process besides its health. */
interface ServedSurfaces {
  readonly surfaces: readonly Surface[]
  /** Starts the work that belongs to the surfaces. */
  start(app: FastifyInstance): RunningWork
}

interface RunningWork {
  stop(): Promise<unknown>
}

type Load = (services: Services, users: UserServer, version: string) => Promise<readonly Surface[]>

// A surface that the configuration leaves out is not imported, so that it costs no memory.
const LOAD: Readonly<Record<SurfaceName, Load>> = {
  async inference(services, users, version) {
    const { inferenceSurfaces } = await import('./inference-surface.ts')
    return inferenceSurfaces(services, users, version)
  },
  async users(_services, users) {
    const { authPlugin, UNKNOWN_PATHS } = await import('#api/auth/plugin.ts')
    return [
      {
        prefixes: ['/', '/auth/v1'],
        plugin: authPlugin(users.services),
        unknownBelow: UNKNOWN_PATHS,
      },
    ]
  },
  async console(services, users, version) {
    const { consoleSurface } = await import('./console.ts')
    return [consoleSurface(services, users, version)]
  },
  async playground(_services, _users, version) {
    const { playgroundPlugin } = await import('#api/playground/plugin.ts')
    return [{ prefixes: ['/'], plugin: playgroundPlugin({ version }) }]
  },
}

const IDLE: RunningWork = { stop: async () => undefined }

/** Loads the surfaces that the configuration names, in the order of the table. */
export async function loadSurfaces(
  services: Services,
  users: UserServer,
  version: string,
): Promise<ServedSurfaces> {
  const { surfaces: served } = services.config
  const surfaces: Surface[] = []
  for (const [name, load] of Object.entries(LOAD)) {
    if (served.some((wanted) => wanted === name)) {
      surfaces.push(...(await load(services, users, version)))
    }
  }
  if (!served.includes('inference')) return { surfaces, start: () => IDLE }
  // Batches and background jobs run through the routes of inference.
  const { startInference } = await import('./inference-surface.ts')
  return { surfaces, start: (app) => startInference(services, app) }
}
