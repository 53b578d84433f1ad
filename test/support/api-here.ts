import { subscribe, unsubscribe } from 'node:diagnostics_channel'

import type { FastifyInstance } from 'fastify'

import { runApi } from '#api/server/main.ts'
import { findFreePort } from '#launcher/embedded/child.ts'

import { apiEnv, commonEnv, type TierPlace } from './tiers.ts'

/** One method of one path of the routing table. */
export interface ServedRoute {
  readonly method: string
  /** With parameters as `{name}`; `*` is any rest. */
  readonly path: string
  /** Left out of the API description on purpose. */
  readonly isHidden: boolean
}

/** An API process inside the test's own, and its whole routing table. */
export interface ApiHere {
  readonly url: string
  readonly routes: readonly ServedRoute[]
  stop(): Promise<void>
}

/** Starts an API process in this one, where its routing table can be read as it is built. */
export async function startApiHere(place: TierPlace): Promise<ApiHere> {
  const routes: ServedRoute[] = []
  const listen = (message: unknown): void => {
    const { fastify } = message as { readonly fastify: FastifyInstance }
    fastify.addHook('onRoute', ({ method, url, schema }) => {
      const path = url.replaceAll(/:(\w+)/g, '{$1}')
      const isHidden = schema?.hide === true
      for (const each of [method].flat()) routes.push({ method: each, path, isHidden })
    })
  }
  const [port, metricsPort] = await Promise.all([findFreePort(), findFreePort()])
  subscribe('fastify.initialization', listen)
  try {
    const { url, stop } = await runApi({
      ...commonEnv(place),
      ...apiEnv(place.databaseUrl, port),
      ...place.env,
      OTEL_EXPORTER_PROMETHEUS_PORT: String(metricsPort),
      // The log would be the test's own output.
      LOG_LEVEL: 'fatal',
    })
    return { url, routes, stop }
  } finally {
    unsubscribe('fastify.initialization', listen)
  }
}
