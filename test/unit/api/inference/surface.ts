import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { FastifyInstance } from 'fastify'

import { inferencePlugin } from '#api/inference/plugin.ts'
import { createImageIntake } from '#api/inference/request-images.ts'
import { rootDialects } from '#api/inference/root-dialects.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { HeldBytes } from '#api/jobs/held-bytes.ts'
import type { JobEvent, SubmitRequest, Submitter } from '#api/jobs/observers.ts'
import { mediaPlugin } from '#api/media/routes.ts'
import { buildApp } from '#api/server/app.ts'
import { type V1Services, v1Plugin } from '#api/v1/plugin.ts'
import { parseCatalogue } from '#shared/catalogue.ts'
import type { Candidate, GenerateInput } from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import type { Logger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'

import { MemoryKeys } from './memory-keys.ts'

/** The key that the surface under test knows. */
export const API_KEY = 'sk-test-0123456789abcdefWXYZ'

/** Models of every kind that the routes distinguish. */
export const CATALOGUE = parseCatalogue({
  models: [
    {
      id: 'tiny-chat',
      kind: 'completion',
      source: 'models/tiny-chat',
      aliases: ['gpt-3.5-turbo'],
      capabilities: ['chat', 'completion', 'edit', 'search'],
      created: 1_700_000_000,
    },
    { id: 'org/base:v1', kind: 'completion', source: 'x', capabilities: ['completion'] },
    { id: 'only-chat', kind: 'completion', source: 'x', capabilities: ['chat'] },
    { id: 'tiny-vision', kind: 'completion', source: 'x', capabilities: ['chat', 'vision'] },
    { id: 'tiny-embed', kind: 'embedding', source: 'x', capabilities: [] },
    {
      id: 'with-prefixes',
      kind: 'embedding',
      source: 'x',
      capabilities: [],
      options: { queryPrefix: 'query: ', passagePrefix: 'passage: ' },
    },
    {
      id: 'tiny-sd',
      kind: 'image',
      source: 'x',
      capabilities: [],
      aliases: ['dall-e-2', 'gpt-image-1'],
    },
    { id: 'tiny-whisper', kind: 'audio', source: 'x', aliases: ['whisper-1'], capabilities: [] },
    { id: 'tiny-tts', kind: 'speech', source: 'x', aliases: ['tts-1'], capabilities: [] },
    { id: 'tiny-rerank', kind: 'embedding', source: 'x', capabilities: ['rerank'] },
    { id: 'colbert', kind: 'embedding', source: 'x', capabilities: ['multi-vector'] },
    { id: 'splade', kind: 'embedding', source: 'x', capabilities: ['sparse'] },
    {
      id: 'judge',
      kind: 'embedding',
      source: 'x',
      aliases: ['omni-moderation-latest'],
      capabilities: ['classify'],
      options: { categories: { V: 'violence', fine: null } },
    },
  ],
})

type CompletionEvents = AsyncIterable<JobEvent<'completion'>> | Iterable<JobEvent<'completion'>>

/** The replies of the workers to a request. */
export type Script = (request: SubmitRequest<'completion'>) => CompletionEvents

/** A submitter that plays a script and remembers what was submitted. */
export class ScriptedSubmitter implements Submitter {
  readonly requests: SubmitRequest<'completion'>[] = []
  cancelled = 0
  script: Script

  constructor(script: Script) {
    this.script = script
  }

  get input(): GenerateInput {
    return this.requests.at(-1)?.input as GenerateInput
  }

  async *submit(request: SubmitRequest<never>): AsyncGenerator<never> {
    const job = request as unknown as SubmitRequest<'completion'>
    this.requests.push(job)
    let isDone = false
    try {
      for await (const event of this.script(job)) {
        isDone = event.type === 'result'
        yield event as never
      }
    } finally {
      if (!isDone) this.cancelled += 1
    }
  }

  async close(): Promise<void> {}
}

/** Events of a job that says these pieces, one token each, for every candidate. */
export function* speak(
  input: GenerateInput,
  pieces: readonly string[],
  last: Partial<Candidate> = {},
): Generator<JobEvent<'completion'>> {
  const indexes = Array.from({ length: input.prompts.length * input.n }, (_, index) => index)
  const finishReason = last.finishReason ?? 'stop'
  // The model of the tests reads no hint at all.
  const ignored = (input.hints ?? []).flatMap(({ field, isUsual }) => (isUsual ? [] : [field]))
  yield { type: 'started', workerId: 'w1', promptTokens: 5, ignored }
  if (input.stream) {
    for (const [at, text] of pieces.entries()) {
      yield {
        type: 'delta',
        deltas: indexes.map((index) => ({
          index,
          text,
          tokenIds: [at],
          ...(last.logprobs?.[at] !== undefined && { logprobs: [last.logprobs[at]] }),
          ...(at === pieces.length - 1 && { finishReason }),
        })),
      }
    }
  }
  yield {
    type: 'result',
    result: {
      task: 'generate',
      candidates: indexes.map((index) => ({
        index,
        text: pieces.join(''),
        tokenIds: pieces.map((_, at) => at),
        ...(last.logprobs !== undefined && { logprobs: last.logprobs }),
        finishReason,
      })),
    },
    usage: {
      promptTokens: 5,
      completionTokens: pieces.length * indexes.length,
      cachedTokens: 2,
    },
    timings: { queueMs: 1, prepareMs: 1, runMs: 7 },
  }
}

/** A job of any kind that ends with this result, or with one made from its input. */
export function answering(
  result: object | ((input: never) => object),
  usage: Partial<TokenUsage> = {},
): Script {
  return ({ input }) =>
    [
      { type: 'started', workerId: 'w1', promptTokens: usage.promptTokens ?? 3 },
      {
        type: 'result',
        result: typeof result === 'function' ? result(input as never) : result,
        usage: { promptTokens: 3, completionTokens: 0, cachedTokens: 0, ...usage },
        timings: { queueMs: 1, prepareMs: 1, runMs: 1 },
      },
    ] as unknown as JobEvent<'completion'>[]
}

/** The whole application with one surface, over a script instead of queues. */
export async function openSurface(
  script: Script = ({ input }) => speak(input as GenerateInput, ['Hello', ' world']),
  overrides: Partial<InferenceServices & V1Services> = {},
): Promise<{
  app: FastifyInstance
  submitter: ScriptedSubmitter
  keys: MemoryKeys
  clock: { nowMs: number }
  post(url: string, body: unknown, headers?: Record<string, string>): Promise<Answer>
  get(url: string): Promise<Answer>
  /** The job that workers receive for a text model. */
  inputOf(url: string, fields: object): Promise<GenerateInput>
}> {
  const submitter = new ScriptedSubmitter(script)
  const keys = new MemoryKeys()
  keys.add(API_KEY)
  const clock = { nowMs: 1_750_000_000_000 }
  const services: InferenceServices = {
    submitter,
    catalogue: CATALOGUE,
    workers: async () => [],
    workersSeen: () => [],
    jobsInFlight: () => 0,
    files: { find: async () => undefined },
    // Made when something is first put there.
    store: openDirectoryStore(join(tmpdir(), `millrace-surface-${process.pid}`)),
    temporaryBytes: new HeldBytes(64 * 1024 ** 2),
    images: createImageIntake({ countMax: 4, bytesMax: 1024 * 1024, urls: 'public' }),
    signer: createUrlSigner('secret of the tests'),
    apiKeys: keys,
    note: () => {},
    clock: { now: () => clock.nowMs, monotonic: () => clock.nowMs },
    log: SILENT,
    config: { deadlineSeconds: 600 },
    publicUrl: 'http://127.0.0.1',
    ...overrides,
  }
  const app = await buildApp({
    server: {
      host: '127.0.0.1',
      port: 0,
      requestIdHeader: '',
      bodyBytesMax: 1024 * 1024,
      largeBodiesBytesMax: 256 * 1024 * 1024,
      drainTimeoutSeconds: 1,
      trustedProxies: [],
      urlSigningSecret: 'x',
      adminToken: '',
      slowRequestSeconds: 5,
    },
    version: '0.0.0',
    publicUrl: 'http://127.0.0.1',
    log: SILENT,
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/v1'],
        plugin: v1Plugin(services, [inferencePlugin(services), mediaPlugin(services)]),
      },
      {
        prefixes: ['/'],
        plugin: v1Plugin(services, [rootDialects(services, '0.0.0')], {
          answersUnknownPaths: false,
        }),
      },
    ],
  })
  const authorization = `Bearer ${API_KEY}`
  const post = (url: string, body: unknown, headers: Record<string, string> = {}) =>
    app.inject({
      method: 'POST',
      url,
      headers: { authorization, 'content-type': 'application/json', ...headers },
      payload: typeof body === 'string' ? body : JSON.stringify(body),
    })
  return {
    app,
    submitter,
    keys,
    clock,
    post,
    async inputOf(url, fields) {
      const response = await post(url, { model: 'gpt-3.5-turbo', ...fields })
      if (!response.body.includes('"tiny-chat"')) throw new Error(response.body)
      return submitter.input
    },
    get: (url) => app.inject({ method: 'GET', url, headers: { authorization } }),
  }
}

type Answer = Awaited<ReturnType<FastifyInstance['inject']>>

/** The chunks of a streamed answer, and whether it ended with `[DONE]`. */
export function readStream(payload: string): { chunks: Chunk[]; isDone: boolean } {
  const lines = payload.split('\n\n').filter((line) => line !== '')
  const data = lines.map((line) => line.replace(/^data: /, ''))
  const isDone = data.at(-1) === '[DONE]'
  return { chunks: data.slice(0, isDone ? -1 : undefined).map((line) => JSON.parse(line)), isDone }
}

/** A chunk, loosely: tests say what they expect of it. */
export interface Chunk {
  id: string
  object: string
  choices: {
    index: number
    text?: string
    delta?: Record<string, unknown>
    logprobs: unknown
    finish_reason: string | null
  }[]
  usage?: Record<string, unknown> | null
  [field: string]: unknown
}

/** Writes nothing. */
export const SILENT: Logger = {
  fatal: () => {},
  error: () => {},
  warn: () => {},
  info: () => {},
  debug: () => {},
  child: () => SILENT,
}

/** The surface behind a socket, for clients that open their own connections. */
export async function serveSurface(...given: Parameters<typeof openSurface>): Promise<{
  surface: Awaited<ReturnType<typeof openSurface>>
  baseURL: string
  close(): Promise<void>
}> {
  const surface = await openSurface(...given)
  const { app } = surface
  const address = await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    surface,
    baseURL: `${address}/v1`,
    async close() {
      // The clients keep their connections for the next request.
      app.server.closeAllConnections()
      await app.close()
    },
  }
}
