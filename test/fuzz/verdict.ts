import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormatsModule from 'ajv-formats'

import type { Operation, Surface } from './document.ts'
import type { FuzzRequest } from './requests.ts'
import type { WireAnswer } from './wire.ts'

/** Says what is wrong with an answer; undefined when nothing is. */
export type Judge = (
  operation: Operation,
  request: FuzzRequest,
  answer: WireAnswer,
) => string | undefined

// Refused before it is known whose path it is.
const NOBODYS_STATUSES = [400, 404, 405, 408, 413, 414, 415, 431]
const STACK = /\bat \S+ \(?(?:file|node):|node_modules|\.ts:\d+/
const REDIRECTS = [301, 302, 303, 307, 308]
const PAGE = /^text\/html|^text\/plain|^image\/|^text\/css|^text\/vtt|javascript|yaml/

/** The judge of an installation at an address, with the host names that it may redirect to. */
export function createJudge(hosts: readonly string[]): Judge {
  const ajv = new Ajv2020({ strict: false })
  addFormatsModule.default(ajv)
  const compiled = new Map<object, ValidateFunction>()
  const complaintOf = (schema: object, value: unknown): string | undefined => {
    const validate = compiled.get(schema) ?? ajv.compile(schema)
    compiled.set(schema, validate)
    return validate(value) ? undefined : ajv.errorsText(validate.errors)
  }
  const judgeJson = (operation: Operation, request: FuzzRequest, answer: WireAnswer) => {
    const value = parseJson(answer.body)
    if (value === undefined) return `${answer.status} with a body that is not JSON`
    if (answer.status >= 400 && !ERROR_FORMS[operation.surface](value, answer.status)) {
      const isNobodys = isErrorOfV1(value) && NOBODYS_STATUSES.includes(answer.status)
      return isNobodys ? undefined : `${answer.status} in another form than its surface has`
    }
    const schema = operation.answers[answer.status]
    if (schema === undefined || !isAskedFor(operation, request)) return undefined
    const complaint = complaintOf(schema, value)
    return complaint && `${answer.status} against its schema: ${complaint}`
  }
  return (operation, request, answer) => {
    const { status, headers, body, isWhole } = answer
    // A request that cannot be read is refused with a text, even one that wants none.
    const isComplete = isWhole || (request.method === 'HEAD' && status >= 400)
    if (!isComplete) return `${status} that broke off`
    if ('x-injected' in headers) return 'a header of the client became one of the answer'
    if (STACK.test(body) && operation.surface !== 'other') return `${status} that shows a stack`
    if (status >= 500) return judgeFailure(answer)
    if (REDIRECTS.includes(status)) return judgeRedirect(headers.location, hosts)
    const type = headers['content-type'] ?? ''
    if (type.startsWith('text/event-stream')) return judgeStream(body)
    if (request.method === 'HEAD' || body === '') return undefined
    if (type.startsWith('application/json')) return judgeJson(operation, request, answer)
    if (status < 400 || operation.surface === 'other') {
      return PAGE.test(type) || status < 400 ? undefined : `${status} of the type ${type}`
    }
    // The status that this protocol's clients have always received for missing resources.
    const isUnknown = operation.surface === 'auth' && status === 404 && body.startsWith('404 ')
    return isUnknown ? undefined : `${status} of the type ${type}`
  }
}

/**
 * Another method, or an empty name at the end of the path, which means the list, asks for something
 * else.
 */
function isAskedFor(operation: Operation, { method, target }: FuzzRequest): boolean {
  const [path = ''] = target.split('?', 1)
  return method === operation.method && (!path.endsWith('/') || operation.path.endsWith('/'))
}

function judgeFailure({ status, headers, body }: WireAnswer): string | undefined {
  const value = parseJson(body)
  const isTyped = FORMS.some((isForm) => isForm(value, status))
  // The second status is that of Anthropic's Messages.
  const isBusy = status === 503 || status === 529
  if (isBusy && isTyped && headers['retry-after'] !== undefined) return undefined
  return `${status}: ${body.slice(0, 200)}`
}

function isErrorOfMessages(value: unknown): boolean {
  const { type, error } = (value ?? {}) as { type?: unknown; error?: Record<string, unknown> }
  return type === 'error' && typeof error?.type === 'string' && typeof error.message === 'string'
}

function isErrorOfCohere(value: unknown): boolean {
  const { id, message } = (value ?? {}) as Record<string, unknown>
  return typeof id === 'string' && typeof message === 'string'
}

function isErrorOfV1(value: unknown): boolean {
  const error = (value as { error?: unknown } | null)?.error
  if (typeof error !== 'object' || error === null) return false
  const { message, type, param, code } = error as Record<string, unknown>
  const isTextOrNull = (field: unknown) => field === null || typeof field === 'string'
  const isFull = typeof message === 'string' && message !== '' && typeof type === 'string'
  return isFull && isTextOrNull(param) && isTextOrNull(code)
}

function isErrorOfAuth(value: unknown, status: number): boolean {
  const error = value as Record<string, unknown>
  if (typeof error !== 'object' || error === null) return false
  if (typeof error.code === 'string') return typeof error.message === 'string'
  const { code, msg, error_code: name } = error
  return code === status && typeof msg === 'string' && typeof name === 'string'
}

/** Pages and the board of queues say what is wrong, each in its own words. */
function isPlain(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  return 'error' in value || 'message' in value
}

const ERROR_FORMS: Readonly<Record<Surface, (value: unknown, status: number) => boolean>> = {
  v1: isErrorOfV1,
  messages: isErrorOfMessages,
  cohere: isErrorOfCohere,
  auth: isErrorOfAuth,
  other: (value, status) => isErrorOfV1(value) || isErrorOfAuth(value, status) || isPlain(value),
}
const FORMS = Object.values(ERROR_FORMS)

function judgeRedirect(location: string | undefined, hosts: readonly string[]) {
  if (location === undefined) return 'a redirect to nowhere'
  if (!URL.canParse(location)) {
    const isOwn = /^\.{0,2}\/(?![/\\])/.test(location)
    return isOwn ? undefined : `a redirect to ${location}`
  }
  return hosts.includes(new URL(location).hostname) ? undefined : `a redirect to ${location}`
}

const LAST_EVENTS = [
  'response.completed',
  'response.incomplete',
  'message_stop',
  'image_generation.completed',
  'image_edit.completed',
  'transcript.text.done',
  'speech.audio.done',
]

/** Every event is JSON but the last, if that is `[DONE]`; an error ends a stream in another way. */
function judgeStream(body: string): string | undefined {
  const events = body.split('\n\n').filter((text) => text !== '' && !text.startsWith(':'))
  const payloads = events.map((event) => event.replace(/^(event: .*\n)?data: /, ''))
  const last = payloads.at(-1)
  const values = payloads.filter((text) => text !== '[DONE]').map(parseJson)
  if (values.includes(undefined)) return 'an event that is not JSON'
  const error = values.find((value) => 'error' in (value as object))
  if (error !== undefined) return `a stream that failed: ${JSON.stringify(error).slice(0, 200)}`
  const { type } = (values.at(-1) ?? {}) as { type?: unknown }
  const isEnd = last === '[DONE]' || LAST_EVENTS.includes(String(type))
  return isEnd ? undefined : 'a stream that does not end'
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'latin1').toString('utf8'))
  } catch {
    return undefined
  }
}
