import type { FastifyInstance } from 'fastify'

import { failure, type ServiceError } from '#shared/errors.ts'

/** What a JSON body may be made of; its size is bounded elsewhere. */
export const JSON_LIMITS = {
  /** Arrays and objects within each other. */
  depth: 200,
  /** Members of all objects together. */
  members: 50_000,
  /** Items and members of everything together: a request may embed 300,000 token ids. */
  values: 400_000,
} as const

/**
 * Reads `application/json`. A body is judged before it is parsed: a million small objects take far
 * more memory, and time of the event loop, than the bytes that they are written in.
 */
export function registerJsonBody(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    // Older clients name the type also where a route has no body and they send none.
    const hasBody = request.routeOptions.schema?.body !== undefined
    if (body.length === 0 && !hasBody) return done(null, undefined)
    const fault = judgeJson(body as Buffer)
    if (fault !== undefined) return done(fault)
    // The parser ends by calling back; it returns nothing of its own.
    void parse(request, (body as Buffer).toString('utf8'), done)
  })
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a
const OPENERS: readonly number[] = [0x5b, 0x7b]
const CLOSERS: readonly number[] = [0x5d, 0x7d]
const NAME_SHOWN_MAX = 64

/** The refusal of a JSON text of too many parts, naming the parameter it is in; else undefined. */
export function judgeJson(bytes: Buffer): ServiceError | undefined {
  let depth = 0
  let members = 0
  let values = 0
  let text: readonly [number, number] = [0, 0]
  let param: string | undefined
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] as number
    if (byte === QUOTE) {
      const end = endOfText(bytes, at)
      text = [at + 1, end]
      at = end
    } else if (OPENERS.includes(byte)) {
      depth += 1
      values += 1
      if (depth > JSON_LIMITS.depth) return tooMuch('levels of nesting', JSON_LIMITS.depth, param)
    } else if (CLOSERS.includes(byte)) {
      depth -= 1
    } else if (byte === COLON) {
      members += 1
      if (depth === 1) param = bytes.toString('utf8', ...text).slice(0, NAME_SHOWN_MAX)
      if (members > JSON_LIMITS.members) return tooMuch('members', JSON_LIMITS.members, param)
    } else if (byte === COMMA) {
      values += 1
      if (values > JSON_LIMITS.values) return tooMuch('values', JSON_LIMITS.values, param)
    }
  }
  return undefined
}

/** Where the text that begins with the quote at `start` ends, by its closing quote. */
function endOfText(bytes: Buffer, start: number): number {
  for (let end = bytes.indexOf(QUOTE, start + 1); end !== -1; end = bytes.indexOf(QUOTE, end + 1)) {
    let escapes = 0
    while (bytes[end - 1 - escapes] === BACKSLASH) escapes += 1
    if (escapes % 2 === 0) return end
  }
  return bytes.length
}

function tooMuch(what: string, limit: number, param: string | undefined): ServiceError {
  return failure.invalidRequest(
    `The JSON body is too complex: at most ${limit} ${what} are allowed.`,
    { code: 'json_too_complex', ...(param !== undefined && { param }) },
  )
}
