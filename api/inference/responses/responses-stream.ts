import { obfuscation, type StreamPresenter } from '#api/inference/generate.ts'
import { presentErrorBody } from '#api/v1/error-dialect.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import type { ServiceError } from '#shared/errors.ts'

import {
  endStatus,
  presentResponse,
  type ResponseHead,
  type ResponseState,
} from './responses-answer.ts'
import { type OutputStep, outputText, type ResponseOutput } from './responses-output.ts'

/** Writes the named events of a streamed response. */
export function responsePresenter(
  head: ResponseHead,
  output: ResponseOutput,
  options: {
    readonly now: () => number
    /** Stores the finished response; returns the response that the client receives. */
    readonly save: (response: object) => Promise<object>
  },
): StreamPresenter {
  const events = new EventWriter(head.body.stream_options?.include_obfuscation === true)
  const { now, save } = options
  const lifecycle = (type: string, state: ResponseState): string =>
    events.write(type, { response: presentResponse(head, state) })
  return {
    started: (_promptTokens, { dialect } = {}) => output.reads(dialect),
    opening: () =>
      lifecycle('response.created', { status: 'in_progress' }) +
      lifecycle('response.in_progress', { status: 'in_progress' }),
    deltas: (deltas) =>
      deltas
        .flatMap((delta) => output.push(delta))
        .map((step) => events.writeStep(step))
        .join(''),
    async ending(usage: TokenUsage) {
      const { items } = output
      const status = endStatus(items)
      const state = { status, completedAt: now(), output: items, usage }
      const response = await save(presentResponse(head, state))
      return events.write(`response.${status}`, { response })
    },
    // Clients that read all events learn the state of the response; others rely on the error.
    failing(error: ServiceError) {
      const state = { status: 'failed', output: output.items, error } as const
      const body = presentErrorBody(error)
      const { code, message, param } = body.error
      return (
        lifecycle('response.failed', state) +
        events.write('error', { code, message, param, ...body })
      )
    },
  }
}

/** Numbers events and formats them for the wire. */
class EventWriter {
  readonly #isObfuscated: boolean
  #sequenceNumber = 0

  constructor(isObfuscated: boolean) {
    this.#isObfuscated = isObfuscated
  }

  write(type: string, fields: object, suffix = ''): string {
    const text = JSON.stringify({ type, sequence_number: this.#sequenceNumber, ...fields })
    this.#sequenceNumber += 1
    return `event: ${type}\ndata: ${text.slice(0, -1)}${suffix}}\n\n`
  }

  writeStep(step: OutputStep): string {
    switch (step.kind) {
      case 'opened':
        return this.#writeOpening(step)
      case 'grown':
        return this.#writeDelta(step)
      case 'closed':
        return this.#writeClosing(step)
    }
  }

  #writeOpening({ index, item }: Extract<OutputStep, { kind: 'opened' }>): string {
    const added = this.write('response.output_item.added', { output_index: index, item })
    if (item.type !== 'message') return added
    const place = { item_id: item.id, output_index: index, content_index: 0 }
    const part = outputText('', [])
    return added + this.write('response.content_part.added', { ...place, part })
  }

  #writeDelta({ index, item, text, logprobs }: Extract<OutputStep, { kind: 'grown' }>): string {
    const place = { item_id: item.id, output_index: index }
    const suffix = obfuscation({ isObfuscated: this.#isObfuscated })
    if (item.type === 'function_call') {
      const type = 'response.function_call_arguments.delta'
      return this.write(type, { ...place, delta: text }, suffix)
    }
    if (item.type === 'custom_tool_call') {
      const type = 'response.custom_tool_call_input.delta'
      return this.write(type, { ...place, delta: text }, suffix)
    }
    if (item.type === 'reasoning') {
      const fields = { ...place, content_index: 0, delta: text }
      return this.write('response.reasoning_text.delta', fields, suffix)
    }
    const fields = { ...place, content_index: 0, delta: text, logprobs }
    return this.write('response.output_text.delta', fields, suffix)
  }

  #writeClosing({ index, item }: Extract<OutputStep, { kind: 'closed' }>): string {
    const place = { item_id: item.id, output_index: index }
    const done = (): string =>
      this.write('response.output_item.done', { output_index: index, item })
    if (item.type === 'function_call') {
      const { name, arguments: text } = item
      const fields = { ...place, name, arguments: text }
      return this.write('response.function_call_arguments.done', fields) + done()
    }
    if (item.type === 'custom_tool_call') {
      const fields = { ...place, input: item.input }
      return this.write('response.custom_tool_call_input.done', fields) + done()
    }
    if (item.type === 'reasoning') {
      const fields = { ...place, content_index: 0, text: item.content[0]?.text ?? '' }
      return this.write('response.reasoning_text.done', fields) + done()
    }
    const [part = outputText('', [])] = item.content
    const { text, logprobs } = part
    const inside = { ...place, content_index: 0 }
    return (
      this.write('response.output_text.done', { ...inside, text, logprobs }) +
      this.write('response.content_part.done', { ...inside, part }) +
      done()
    )
  }
}
