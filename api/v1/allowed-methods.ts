import type { FastifyInstance } from 'fastify'

import { failure, type ServiceError } from '#shared/errors.ts'

/** Returns the methods of a path. */
export type AllowedMethods = (path: string) => readonly string[]

/** Watches the routes that are registered after this call, also in inner scopes. */
export function watchMethods(app: FastifyInstance): AllowedMethods {
  const routes: { readonly pattern: RegExp; readonly methods: readonly string[] }[] = []
  app.addHook('onRoute', ({ url, method }) => {
    routes.push({ pattern: patternOf(url), methods: [method].flat() })
  })
  return (path) => [
    ...new Set(
      routes.filter(({ pattern }) => pattern.test(path)).flatMap(({ methods }) => methods),
    ),
  ]
}

/** Refuses a method that a known path does not have. */
export function methodNotAllowed(method: string, path: string): ServiceError {
  return failure.methodNotAllowed(
    `Not allowed to ${method} on ${path}. (HINT: Perhaps you meant to use a different HTTP method?)`,
  )
}

/** The paths of a route. */
export function patternOf(url: string): RegExp {
  const pattern = url
    .replaceAll(/[.+?^$()[\]{}|\\]/g, '\\$&')
    .replaceAll(/:\w+/g, '[^/]+')
    // An empty segment does not begin the rest of a path.
    .replaceAll('*', '[^/].*')
  return new RegExp(`^${pattern}$`)
}
