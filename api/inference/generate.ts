import type { FastifyReply } from 'fastify'

import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { openEventStream } from '#api/http/sse.ts'
import type { JobEvent, PriorityClass } from '#api/jobs/observers.ts'
import { type Http, runJob, submitJob } from '#api/jobs/run-inference.ts'
import { presentErrorBody } from '#api/v1/error-dialect.ts'
import { type AnswerHead, answerHeadOf, type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type {
  Candidate,
  CandidateDelta,
  GenerateInput,
  PromptLogprobs,
} from '#shared/contracts/completion.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import type { StartReport, TokenUsage } from '#shared/contracts/reply.ts'
import { CancelledError, type ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'

import { modelNameOf } from './model-route.ts'
import { type RequestImages, withImages } from './request-images.ts'
import type { StreamChoice } from './sampling-fields.ts'
import type { InferenceServices } from './services.ts'

/**
 * The validated input of a generation. A batch line has no request, so its answer gets a new head.
 */
export interface Validated<Body> {
  readonly caller: Caller
  readonly modelName: string
  readonly body: Body
  readonly head?: AnswerHead
}

/** The validated input of a request. */
export function validatedOf<Body>({ request }: Http, clock: Pick<Clock, 'now'>): Validated<Body> {
  return {
    caller: callerOf(request),
    modelName: modelNameOf(request),
    body: request.body as Body,
    head: answerHeadOf(request, clock),
  }
}

/** The candidates of a stream as they grow, by their index. */
export type StreamedCandidates = Map<number, Candidate>

/** A generation and the two ways to present it. */
export interface Generation<Answer> {
  readonly model: CatalogueModel
  readonly input: GenerateInput
  /** The images of its messages; if there are any, the model must read images. */
  readonly images?: RequestImages
  readonly priorityClass?: PriorityClass
  present(outcome: {
    readonly candidates: readonly Candidate[]
    readonly usage: TokenUsage
    /** Present if the request asks for token ids. */
    readonly promptTokenIds?: readonly (readonly number[])[]
    /** Present if the request asks for them. */
    readonly promptLogprobs?: readonly PromptLogprobs[]
    readonly dialect?: AnswerDialect
  }): Answer
  presenter(): StreamPresenter
}

/** Runs a generation and answers it as JSON or as a stream. */
export function generate<Answer>(
  http: Http,
  services: InferenceServices,
  generation: Generation<Answer>,
): Promise<Answer | FastifyReply> {
  const { images } = generation
  if (images === undefined) return runGeneration(http, services, generation)
  const { organizationId } = callerOf(http.request)
  return withImages(services, { images, organizationId }, () => {
    return runGeneration(http, services, generation)
  })
}

async function runGeneration<Answer>(
  http: Http,
  services: InferenceServices,
  generation: Generation<Answer>,
): Promise<Answer | FastifyReply> {
  const { model, input, priorityClass } = generation
  const job = {
    ...({ kind: 'completion', model, input } as const),
    ...(priorityClass !== undefined && { priorityClass }),
  }
  if (input.stream) {
    const { events, timeLeftMs } = submitJob(http, services, { ...job, isStream: true })
    const presenter = generation.presenter()
    await answerWithStream(http.reply, events, { presenter, timeLeftMs, log: services.log })
    return http.reply
  }
  const { result, usage } = await runJob(http, services, job)
  if (result.task !== 'generate') throw new Error('a generation was answered with scores')
  return generation.present({ ...result, usage })
}

/** Converts the events of a job to complete server-sent events, possibly none. */
export interface StreamPresenter {
  /** Called first, with the number of prompt tokens and the worker's report. */
  started?(promptTokens: number, report?: StartReport): void
  /** The text before the first token. */
  opening(): string
  deltas(deltas: readonly CandidateDelta[]): string
  /** The text after the last token, to the end of the stream. */
  ending(usage: TokenUsage): string | Promise<string>
  /** The text of a failure in a started stream; one error frame when absent. */
  failing?(error: ServiceError): string
}

/** The end of streams in the older dialects. */
export const DONE = 'data: [DONE]\n\n'

/** Converts the events of a job of any kind to complete server-sent events, possibly none. */
export interface SseSerializer<K extends QueueKind> {
  /** The text before everything else; `first` is serialized afterwards. */
  opening(first: JobEvent<K> | undefined): string
  serialize(event: JobEvent<K>): string | Promise<string>
  /** The text of a failure in a started stream; one error frame when absent. */
  failing?(error: ServiceError): string
}

/** Answers with the stream of a generation. */
function answerWithStream(
  reply: FastifyReply,
  events: AsyncGenerator<JobEvent<'completion'>>,
  options: StreamLimits & { readonly presenter: StreamPresenter },
): Promise<void> {
  const { presenter, ...limits } = options
  const serializer: SseSerializer<'completion'> = {
    opening(first) {
      if (first?.type === 'started') presenter.started?.(first.promptTokens, first)
      return presenter.opening()
    },
    serialize: (event) => textOf(event, presenter),
    ...(presenter.failing !== undefined && {
      failing: (error) => presenter.failing?.(error) ?? '',
    }),
  }
  return answerWithEvents(reply, events, { ...limits, serializer })
}

interface StreamLimits {
  readonly timeLeftMs: number
  readonly log: Logger
}

/**
 * Answers with a stream. Headers are sent once the job has started, so that earlier failures are
 * ordinary errors; a later failure is an event that ends the stream. While the socket is full, the
 * job is not read. A reader that has not read its answer by the deadline is disconnected. A stream
 * under an Idempotency-Key runs to its end, because it is recorded.
 */
export async function answerWithEvents<K extends QueueKind>(
  reply: FastifyReply,
  events: AsyncGenerator<JobEvent<K>>,
  options: StreamLimits & { readonly serializer: SseSerializer<K> },
): Promise<void> {
  const { serializer } = options
  const isKept = reply.request.context.durable !== undefined
  const first = await events.next()
  if (reply.raw.destroyed && !isKept) {
    await events.return(undefined)
    throw new CancelledError()
  }
  reply.header('openai-processing-ms', Math.round(reply.elapsedTime))
  const stream = openEventStream(reply)
  const cutOff = setTimeout(() => reply.raw.destroy(), options.timeLeftMs + CUT_OFF_GRACE_MS)
  try {
    await write(serializer.opening(first.done === true ? undefined : first.value))
    if (first.done !== true) await write(await serializer.serialize(first.value))
    for await (const event of events) {
      if (hasLeft()) return
      await write(await serializer.serialize(event))
    }
  } catch (thrown) {
    if (thrown instanceof CancelledError || hasLeft()) return
    const error = normalizeError(thrown)
    if (isBug(error)) options.log.error({ err: error.cause }, 'stream failed')
    await stream.write(serializer.failing?.(error) ?? errorFrame(error))
  } finally {
    clearTimeout(cutOff)
    stream.end()
    // Ends the job if the loop never started; otherwise the loop has already done so.
    await events.return(undefined)
  }

  function hasLeft(): boolean {
    return stream.signal.aborted && !isKept
  }

  async function write(text: string): Promise<void> {
    if (text !== '') await stream.write(text)
  }
}

// The job's own deadline is answered first; this only disconnects readers that read nothing at all.
const CUT_OFF_GRACE_MS = 10_000
const OBFUSCATION_MAX = 16

/** Random characters that hide the size of a chunk, as a further field; empty if not wanted. */
export function obfuscation(choice: Pick<StreamChoice, 'isObfuscated'>): string {
  if (!choice.isObfuscated) return ''
  return `,"obfuscation":"${randomId('', 1 + Math.floor(Math.random() * OBFUSCATION_MAX))}"`
}

function errorFrame(error: ServiceError): string {
  return `data: ${JSON.stringify(presentErrorBody(error))}\n\n`
}

function textOf(
  event: JobEvent<'completion'>,
  presenter: StreamPresenter,
): string | Promise<string> {
  switch (event.type) {
    case 'delta':
      return presenter.deltas(event.deltas)
    case 'result':
      return presenter.ending(event.usage)
    default:
      return ''
  }
}

/** The end of each chunk: with the token counts so far, with null, or without the field. */
export class StreamUsage {
  readonly #isContinuous: boolean
  readonly #suffix: string
  #promptTokens = 0
  #completionTokens = 0

  constructor({ includesUsage, isUsageContinuous }: StreamChoice) {
    this.#isContinuous = isUsageContinuous
    this.#suffix = includesUsage ? '],"usage":null' : ']'
  }

  /** Records the length of the prompt. */
  started(promptTokens: number): void {
    this.#promptTokens = promptTokens
  }

  /** Adds tokens that are about to be sent. */
  add(delta: CandidateDelta): void {
    this.#completionTokens += delta.tokenIds.length
  }

  /** Closes the list of choices and adds the usage. */
  suffix(): string {
    if (!this.#isContinuous) return this.#suffix
    const prompt = this.#promptTokens
    const completion = this.#completionTokens
    return `],"usage":{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${prompt + completion}}`
  }
}
