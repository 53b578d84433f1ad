import type { BullMQAdapter } from '@bull-board/api/bullMQAdapter'
import { type FastifyInstance, fastify } from 'fastify'

import { lateApp } from '#api/http/late-app.ts'
import { normalizeError } from '#api/http/normalize-error.ts'
import { SCHEMA_CONTROLLER } from '#api/http/serialization.ts'
import { wayToRoot } from '#api/pages/html.ts'
import { MAX_PARAM_LENGTH, sendSecurityHeaders } from '#api/server/app.ts'
import { queuesOf } from '#shared/catalogue.ts'

import type { OverviewServices } from './overview.ts'

export interface QueueBoardServices extends Pick<OverviewServices, 'catalogue' | 'queues'> {
  /** Calls a function after every change of the catalogue. */
  onCatalogueChange(listener: () => void): void
}

// Job fields that help an operator and contain no user data.
const SHOWN_FIELDS = [
  'jobId',
  'epoch',
  'kind',
  'modelId',
  'organizationId',
  'enqueuedAtMs',
  'deadlineAtMs',
]

/** The queue board (Bull Board), read-only; the surrounding scope authenticates. */
export function registerQueueBoard(
  app: FastifyInstance,
  services: QueueBoardServices,
  assetsVersion: string,
): void {
  const show = lateApp(() => buildBoard(services, app.prefix, assetsVersion))
  for (const url of ['/', '/*']) app.get(url, { schema: { hide: true } }, show)
}

/** Builds an application with the board at `path`. Its packages load 130 modules. */
async function buildBoard(
  services: QueueBoardServices,
  path: string,
  assetsVersion: string,
): Promise<FastifyInstance> {
  const [{ createBullBoard }, { FastifyAdapter }, { BullMQAdapter: Adapter }] = await Promise.all([
    import('@bull-board/api'),
    import('@bull-board/fastify'),
    import('@bull-board/api/bullMQAdapter'),
  ])
  const app: FastifyInstance = fastify({
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    schemaController: SCHEMA_CONTROLLER,
  })
  sendSecurityHeaders(app, { contentSecurityPolicy: CONTENT_SECURITY_POLICY })
  const board = new FastifyAdapter()
  board.setBasePath(path)
  const { replaceQueues } = createBullBoard({
    queues: [],
    serverAdapter: board,
    options: { uiConfig: { boardTitle: 'Millrace', hideRedisDetails: true } },
  })
  const showQueues = (): void =>
    replaceQueues(
      queuesOf(services.catalogue).map(({ kind, id }) =>
        readOnly(
          new Adapter(services.queues.of(kind, id).producer.queue(kind, id), {
            readOnlyMode: true,
          }),
        ),
      ),
    )
  showQueues()
  services.onCatalogueChange(showQueues)
  // The board's error handler answers 500 for every error.
  board.setErrorHandler((thrown) => {
    const { status, message } = normalizeError(thrown)
    // The board's types allow five statuses only.
    return { status: status as 500, body: { error: { message } } }
  })
  app.addHook('onSend', async (request, reply, payload) => {
    const isPage = String(reply.getHeader('content-type')).startsWith('text/html')
    if (!isPage || typeof payload !== 'string') return payload
    const base = `${wayToRoot(request.url)}admin/queues/`
    const script = `../assets/${assetsVersion}/board-base.js`
    return plainPage(payload).replace(
      /<base [^>]*>/,
      `<base href="${base}"><script src="${script}"></script>`,
    )
  })
  await app.register(board.registerPlugin(), { prefix: path })
  return app
}

/** The board's page without inline styles and external resources. */
function plainPage(html: string): string {
  return html
    .replace(/<link\b[^>]*\bhref="(?:https?:)?\/\/[^>]*>/g, '')
    .replace(/<style\b[\s\S]*?<\/style>/g, '')
    .replace(/(<[a-z][^<>]*?) style="[^"]*"/g, '$1')
}

function readOnly(adapter: BullMQAdapter): BullMQAdapter {
  adapter.setFormatter('data', redact)
  // Answers never pass through BullMQ; a return value would not be shown.
  adapter.setFormatter('returnValue', () => undefined)
  return adapter
}

/** The description of a job without its content: no prompt, no file, no reply stream. */
function redact(data: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const shown = Object.fromEntries(SHOWN_FIELDS.map((name) => [name, data[name]]))
  return { ...shown, input: '[redacted]' }
}

const CONTENT_SECURITY_POLICY = {
  useDefaults: false,
  directives: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    // The content security policy does not restrict styles that scripts set on elements; the page
    // itself has no inline style.
    styleSrc: ["'self'"],
    fontSrc: ["'self'"],
    imgSrc: ["'self'", 'data:'],
    connectSrc: ["'self'"],
    baseUri: ["'self'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
  },
}
