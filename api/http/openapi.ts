import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance } from 'fastify'

/** Serves the OpenAPI 3.1 document of everything registered after this call, and a page to try it. */
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
          'Inference, files and media under /v1; users and sign-in at the root and under /auth/v1.',
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
    transformObject: (made) => ('openapiObject' in made ? withErrors(made.openapiObject) : {}),
  })
  await app.register(swaggerUi, { routePrefix: '/docs', uiConfig: { tryItOutEnabled: true } })
  app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
}

const NULLABLE_TEXT = { type: ['string', 'null'] }

const ERROR = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { ...NULLABLE_TEXT, description: 'The field that is at fault.' },
        code: NULLABLE_TEXT,
      },
    },
  },
}

const USER_SERVER_ERROR = {
  anyOf: [
    {
      type: 'object',
      description: 'The usual form.',
      required: ['code', 'error_code', 'msg'],
      properties: {
        code: { type: 'integer' },
        error_code: { type: 'string' },
        msg: { type: 'string' },
      },
    },
    {
      type: 'object',
      description: 'From `X-Supabase-Api-Version: 2024-01-01` on.',
      required: ['code', 'message'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    // What is refused before it is known whose path it is.
    { $ref: '#/components/schemas/Error' },
  ],
}

interface OpenApiDocument {
  readonly components?: object
  readonly paths?: Readonly<Record<string, object | undefined>>
}

/** Every operation may be refused for reasons that are not its own, such as a path that is too long. */
function withErrors(document: OpenApiDocument): object {
  const schemas = { Error: ERROR, UserServerError: USER_SERVER_ERROR }
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
    { ...operation, responses: { ...operation.responses, default: refused } },
  ])
  return Object.fromEntries(made)
}

const isOfUsers = (path: string): boolean =>
  !path.startsWith('/v1/') && path !== '/healthz' && path !== '/readyz'
