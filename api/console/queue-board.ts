import { createBullBoard } from '@bull-board/api'
import type { BullMQAdapter } from '@bull-board/api/bullMQAdapter'
import { FastifyAdapter } from '@bull-board/fastify'
import type { Queue } from 'bullmq'
import type { FastifyInstance } from 'fastify'

import { normalizeError } from '#api/http/normalize-error.ts'
import { wayToRoot } from '#api/pages/html.ts'
import { sendSecurityHeaders } from '#api/server/app.ts'
import { type Catalogue, queuesOf } from '#shared/catalogue.ts'
import type { QueueKind } from '#shared/contracts/job.ts'

export interface QueueBoardServices {
  readonly catalogue: Catalogue
  /** Calls a function after every change of the catalogue. */
  onCatalogueChange(listener: () => void): void
  queueOf(kind: QueueKind, modelId: string): Queue
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
export async function registerQueueBoard(
  app: FastifyInstance,
  services: QueueBoardServices,
  assetsVersion: string,
): Promise<void> {
  // Registered before the board's own routes: no method but reads reaches them.
  app.addHook('onRequest', async (request, reply) => {
    if (request.method === 'GET' || request.method === 'HEAD') return undefined
    return reply.code(405).header('allow', 'GET, HEAD').type('text/plain').send('Only to look at.')
  })
  sendSecurityHeaders(app, { contentSecurityPolicy: CONTENT_SECURITY_POLICY })
  const board = new FastifyAdapter()
  board.setBasePath(app.prefix)
  const { replaceQueues } = createBullBoard({
    queues: [],
    serverAdapter: board,
    options: { uiConfig: { boardTitle: 'Millrace', hideRedisDetails: true } },
  })
  let isCurrent = false
  services.onCatalogueChange(() => {
    isCurrent = false
  })
  // The queues are opened with the first request for the board, because BullMQ is large.
  app.addHook('onRequest', async () => {
    if (isCurrent) return
    const { BullMQAdapter: Adapter } = await import('@bull-board/api/bullMQAdapter')
    isCurrent = true
    replaceQueues(
      queuesOf(services.catalogue).map(({ kind, id }) =>
        readOnly(new Adapter(services.queueOf(kind, id), { readOnlyMode: true })),
      ),
    )
  })
  // The board's error handler answers 500 for every error.
  board.setErrorHandler((thrown) => {
    const { status, message } = normalizeError(thrown)
    // The board's types allow five statuses only.
    return { status: status as 500, body: { error: { message } } }
  })
  app.addHook('onRoute', (route) => {
    route.schema = { ...route.schema, hide: true }
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
  await app.register(board.registerPlugin())
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
