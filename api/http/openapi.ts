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
  })
  await app.register(swaggerUi, { routePrefix: '/docs', uiConfig: { tryItOutEnabled: true } })
  app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
}
