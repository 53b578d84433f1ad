import type { FastifySwaggerUiConfigOptions, fastifySwaggerUi } from '@fastify/swagger-ui'
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'

import { wayToRoot } from '#api/pages/html.ts'

const PREFIX = '/docs'

/** The routes that the plugin of the page registers. */
export const PAGES: readonly string[] = [
  ...['', '/', '/json', '/yaml', '/static/*'],
  ...['/static/index.html', '/static/swagger-initializer.js'],
].map((path) => `${PREFIX}${path}`)

type SwaggerPlugin = NonNullable<FastifySwaggerUiConfigOptions['plugins']>[number]

/** The page's script treats a query string as part of the path and then finds no document. */
export async function dropQuery({ url }: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  return /^\/docs\/?\?/.test(url) ? reply.redirect(`${wayToRoot(url)}docs`) : undefined
}

/** The page that shows the document. */
export function documentPage(
  swaggerUi: typeof fastifySwaggerUi,
  serverUrl: string,
): FastifyPluginAsync {
  return async (app) => {
    app.addHook('onSend', async ({ url }, reply, payload) => {
      const isPage = String(reply.getHeader('content-type')).startsWith('text/html')
      if (!isPage || typeof payload !== 'string') return payload
      return payload.replaceAll('"/docs/', `"${wayToRoot(url)}docs/`)
    })
    await app.register(swaggerUi, {
      routePrefix: PREFIX,
      uiConfig: {
        tryItOutEnabled: true,
        // Rendering two hundred expanded operations would take a slow machine a minute.
        docExpansion: 'none',
        plugins: [loadDocument, resolveReferences],
      },
      staticCSP: contentSecurityPolicy(serverUrl),
    })
  }
}

declare const SwaggerUIBundle: { readonly plugins: { readonly DownloadUrl: SwaggerPlugin } }

// The browser receives the source of the two functions below, so they must not refer to this
// module.

/** The plugin of Swagger UI that is used when no others are configured. */
function loadDocument(system: unknown): ReturnType<SwaggerPlugin> {
  return SwaggerUIBundle.plugins.DownloadUrl(system)
}

/**
 * Replaces the resolver of Swagger UI, which converts the whole document into its own model, once
 * for the list and again for each operation: seconds each time. All references of this document are
 * local.
 */
function resolveReferences(): ReturnType<SwaggerPlugin> {
  type Step = Readonly<Record<string, unknown>> | undefined
  const find = (document: unknown, path: readonly string[]): unknown =>
    path.reduce<unknown>((value, key) => (value as Step)?.[key], document)
  const resolve = (document: unknown, value: unknown, within: readonly string[]): unknown => {
    if (typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map((entry) => resolve(document, entry, within))
    const { $ref } = value as { readonly $ref?: unknown }
    if (typeof $ref === 'string' && $ref.startsWith('#/')) {
      // A schema that contains itself stays a reference.
      if (within.includes($ref)) return value
      const path = $ref.slice(2).split('/')
      const keys = path.map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'))
      return resolve(document, find(document, keys), [...within, $ref])
    }
    const entries = Object.entries(value)
    return Object.fromEntries(entries.map(([key, own]) => [key, resolve(document, own, within)]))
  }
  return {
    fn: {
      resolveSubtree: async (document: unknown, path: readonly string[]) => {
        return { spec: resolve(document, find(document, path), []), errors: [] }
      },
    },
  }
}

// The content of the style element that Swagger UI's script inserts; the page's test fails when it
// changes.
const OWN_STYLE = "'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='"

/**
 * Nothing inline except one style element, and no external resource; requests go to the document's
 * server only.
 */
function contentSecurityPolicy(serverUrl: string): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' ${OWN_STYLE}`,
    // The page's own icons.
    "img-src 'self' data:",
    "font-src 'self' data:",
    `connect-src 'self' ${new URL(serverUrl).origin}`,
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}
