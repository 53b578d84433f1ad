import { isDeepStrictEqual } from 'node:util'

import {
  type FastifyContextConfig,
  type FastifyInstance,
  type FastifySchema,
  fastify,
  type RouteOptions,
} from 'fastify'

import { ERROR_BODY, USER_SERVER_ERROR } from './error-schemas.ts'
import { lateApp } from './late-app.ts'
import { documentPage, dropQuery, PAGES } from './openapi-page.ts'
import { SCHEMA_CONTROLLER } from './serialization.ts'
import { LITERALS } from './validation.ts'

/**
 * Serves the OpenAPI 3.1 document of everything registered after this call, and a page to try it.
 */
export function registerOpenApi(
  app: FastifyInstance,
  options: { readonly version: string; readonly serverUrl: string },
): void {
  const routes: RouteOptions[] = []
  app.addHook('onRoute', (route) => {
    if (route.method !== 'HEAD') routes.push(route)
  })
  const forward = lateApp(() => buildDocument(routes, options), { isConstant: true })
  for (const url of ['/openapi.json', ...PAGES]) {
    app.get(url, { schema: { hide: true }, onRequest: dropQuery }, forward)
  }
}

/**
 * An application that serves the description of the routes and its page. It is built on first use,
 * because the page, its files and the generator of the description are 130 modules.
 */
async function buildDocument(
  routes: readonly RouteOptions[],
  options: { readonly version: string; readonly serverUrl: string },
): Promise<FastifyInstance> {
  const [{ default: swagger }, { default: swaggerUi }] = await Promise.all([
    import('@fastify/swagger'),
    import('@fastify/swagger-ui'),
  ])
  const app: FastifyInstance = fastify({ schemaController: SCHEMA_CONTROLLER })
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Millrace',
        version: options.version,
        description:
          'Inference, files and media under /v1; users and sign-in at the root and under /auth/v1. If a body allows additional properties, they are ignored and listed in the header `x-millrace-ignored-parameters`; a name within two edits of a known name is refused.',
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
  await app.register(documentPage(swaggerUi, options.serverUrl))
  app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
  // These routes are only described, never called.
  const described = { exposeHeadRoute: false, handler: () => {} }
  for (const { method, url, schema = {}, config = {} } of routes) {
    if (schema.hide !== true) app.route({ method, url, schema, config, ...described })
  }
  return app
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
    description: 'The request was refused or failed.',
    content: { 'application/json': { schema } },
  }
  const made = Object.entries(operations).map(([method, operation]) => [
    method,
    {
      ...formWithoutNull(operation),
      responses: { ...withSharedErrors(operation.responses), default: refused },
    },
  ])
  return Object.fromEntries(made)
}

interface Response {
  readonly content?: Readonly<
    Record<string, { readonly schema?: { readonly properties?: object } }>
  >
}

/** Error bodies refer to their one schema: written out, they were a quarter of the document. */
function withSharedErrors(responses: Readonly<Record<string, Response>>): object {
  const content = { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } }
  const made = Object.entries(responses).map(([status, response]) => {
    const { properties } = response.content?.['application/json']?.schema ?? {}
    const isError = isDeepStrictEqual(properties, ERROR_BODY.properties)
    return [status, isError ? { ...response, content } : response]
  })
  return Object.fromEntries(made)
}

interface Operation {
  readonly requestBody?: { readonly content?: Readonly<Record<string, object>> }
}

/** A form has only texts and files, so its fields are omitted rather than null. */
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
