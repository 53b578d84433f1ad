import type { FastifyReply } from 'fastify'

import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import { openEventStream } from '#api/http/sse.ts'
import { presentErrorBody } from '#api/v1/error-dialect.ts'
import type { CandidateDelta } from '#shared/contracts/completion.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import type { StartReport, TokenUsage } from '#shared/contracts/reply.ts'
import { CancelledError, type ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'

import type { JobEvent } from './jobs/job-events.ts'
import type { StreamChoice } from './sampling-fields.ts'

/** Turns what happens to a job into whole server-sent events, possibly none. */
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

/** How streams of the older dialects end. */
export const DONE = 'data: [DONE]\n\n'

/** Turns the events of a job of any kind into whole server-sent events, possibly none. */
export interface SseSerializer<K extends QueueKind> {
  /** The text before everything else; `first` is serialized afterwards. */
  opening(first: JobEvent<K> | undefined): string
  serialize(event: JobEvent<K>): string | Promise<string>
  /** The text of a failure in a started stream; one error frame when absent. */
  failing?(error: ServiceError): string
}

/** Answers with the stream of a generation. */
export function answerWithStream(
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
 * ordinary errors; a later failure is an event that ends the stream. While the socket is full,
 * nothing is read from the job. A reader that has not taken its answer by the deadline is
 * disconnected. A stream under an Idempotency-Key runs to its end, since it is recorded.
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
    // Ends the job if it has not ended; the loop has done so already unless it never began.
    await events.return(undefined)
  }

  function hasLeft(): boolean {
    return stream.signal.aborted && !isKept
  }

  async function write(text: string): Promise<void> {
    if (text !== '') await stream.write(text)
  }
}

// The job's own deadline is answered first; this only ends readers that take nothing at all.
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
