import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type {
  FastifyContextConfig,
  FastifyInstance,
  FastifyPluginAsync,
  FastifySchema,
} from 'fastify'

import { wayToRoot } from '#api/pages/html.ts'

import { ERROR_BODY, USER_SERVER_ERROR } from './error-schemas.ts'
import { LITERALS } from './validation.ts'

/**
 * Serves the OpenAPI 3.1 document of everything registered after this call, and a page to try it.
 */
export async function registerOpenApi(
  app: FastifyInstance,
  options: { readonly version: string; readonly serverUrl: string },
): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Millrace',
        version: options.version,
        description:
          'Inference, files and media under /v1; users and sign-in at the root and under /auth/v1. Where a body may have additional properties, they are ignored and listed in the header `x-millrace-ignored-parameters`; a name within two edits of a known one is refused.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: options.serverUrl }],
      components: {
        securitySchemes: {
          apiKey: {
            type: 'http',
            scheme: 'bearer',
            description: 'An API key or a user access token',
          },
          userToken: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
        },
      },
    },
    hideUntagged: false,
    transform: ({ schema, url, route }) => ({ schema: withOpenBody(schema, route.config), url }),
    transformObject: (made) => ('openapiObject' in made ? withErrors(made.openapiObject) : {}),
  })
  await app.register(documentPage(options.serverUrl))
  app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
}

/** Where unknown fields of bodies are ignored, the schemas of bodies permit them. */
function withOpenBody(
  schema: FastifySchema,
  config: FastifyContextConfig | undefined,
): FastifySchema {
  const { body } = schema
  if (body === undefined || config?.unknownFields !== 'ignore') return schema
  return { ...schema, body: withoutClosing(body) }
}

function withoutClosing(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutClosing)
  if (typeof schema !== 'object' || schema === null) return schema
  const entries = Object.entries(schema)
    .filter(([key, value]) => key !== 'additionalProperties' || value !== false)
    .map(([key, value]) => [key, LITERALS.includes(key) ? value : withoutClosing(value)])
  return Object.fromEntries(entries)
}

/** The page that shows the document. */
function documentPage(serverUrl: string): FastifyPluginAsync {
  return async (app) => {
    app.addHook('onSend', async ({ url }, reply, payload) => {
      const isPage = String(reply.getHeader('content-type')).startsWith('text/html')
      if (!isPage || typeof payload !== 'string') return payload
      return payload.replaceAll('"/docs/', `"${wayToRoot(url)}docs/`)
    })
    await app.register(swaggerUi, {
      routePrefix: '/docs',
      // Two hundred drawn operations would take a slow machine a minute.
      uiConfig: { tryItOutEnabled: true, docExpansion: 'none' },
      staticCSP: contentSecurityPolicy(serverUrl),
      uiHooks: {
        // The page's script treats a query string as part of the path and then finds no document.
        onRequest: async ({ url }, reply) =>
          /^\/docs\/?\?/.test(url) ? reply.redirect(`${wayToRoot(url)}docs`) : undefined,
      },
    })
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

interface OpenApiDocument {
  readonly components?: object
  readonly paths?: Readonly<Record<string, object | undefined>>
}

/** Errors that every operation can return, such as a path that is too long. */
function withErrors(document: OpenApiDocument): object {
  const schemas = { Error: ERROR_BODY, UserServerError: USER_SERVER_ERROR }
  const paths = Object.entries(document.paths ?? {}).map(([path, operations]) => [
    path,
    withDefault(operations ?? {}, isOfUsers(path) ? 'UserServerError' : 'Error'),
  ])
  return {
    ...document,
    components: { ...document.components, schemas },
    paths: Object.fromEntries(paths),
  }
}

function withDefault(operations: object, name: string): object {
  const schema = { $ref: `#/components/schemas/${name}` }
  const refused = {
    description: 'The request was refused, or failed.',
    content: { 'application/json': { schema } },
  }
  const made = Object.entries(operations).map(([method, operation]) => [
    method,
    { ...formWithoutNull(operation), responses: { ...operation.responses, default: refused } },
  ])
  return Object.fromEntries(made)
}

interface Operation {
  readonly requestBody?: { readonly content?: Readonly<Record<string, object>> }
}

/** A form has texts and files alone: its fields are left out rather than null. */
function formWithoutNull(operation: Operation): object {
  const form = operation.requestBody?.content?.['multipart/form-data']
  if (form === undefined) return operation
  const content = { ...operation.requestBody?.content, 'multipart/form-data': withoutNull(form) }
  return { ...operation, requestBody: { ...operation.requestBody, content } }
}

function withoutNull(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.filter((value) => value !== null).map(withoutNull)
  if (typeof schema !== 'object' || schema === null) return schema
  const { type, ...rest } = schema as Record<string, unknown>
  const isNull = (value: unknown): boolean => (value as { type?: unknown } | null)?.type === 'null'
  const inner = Object.fromEntries(
    Object.entries(rest)
      .filter(([, value]) => !isNull(value))
      .map(([key, value]) => [key, withoutNull(value)]),
  )
  if (type === undefined) return inner
  const types = Array.isArray(type) ? type.filter((name) => name !== 'null') : [withoutNull(type)]
  return { ...inner, type: types.length === 1 ? types[0] : types }
}

const isOfUsers = (path: string): boolean =>
  !path.startsWith('/v1/') && path !== '/healthz' && path !== '/readyz'
