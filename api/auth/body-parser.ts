import type { FastifyInstance, FastifyRequest } from 'fastify'

import { JSON_TEXT_LIMITS, judgeJson } from '#shared/json.ts'
import { storageFault } from '#shared/storable.ts'

import { authFailure } from './errors.ts'

const BODY_BYTES_MAX = 1024 * 1024
const FORM_FIELDS_MAX = 1000

/**
 * Parses bodies as JSON under any content type, because clients of this protocol set it carelessly.
 * A body that is declared as form data is parsed as such only if it looks like it, because curl
 * declares every body so.
 */
export function registerBodyParsers(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  const options = { parseAs: 'string', bodyLimit: BODY_BYTES_MAX } as const
  const form = 'application/x-www-form-urlencoded'
  app.addContentTypeParser(form, options, async (request: FastifyRequest, text: string) => {
    if (!asksForBody(request)) return undefined
    return /^\s*\{/.test(text) ? parseJsonBody(text) : parseForm(text)
  })
  app.addContentTypeParser('*', options, async (request: FastifyRequest, text: string) =>
    asksForBody(request) ? parseJsonBody(text) : undefined,
  )
}

// Some clients send a body with every request: a word with POST /logout, a list with DELETE.
function asksForBody({ routeOptions }: FastifyRequest): boolean {
  return routeOptions.schema?.body !== undefined
}

/** An object from JSON; null, and null in a field, count as absent. Throws `bad_json`. */
export function parseJsonBody(text: string): Record<string, unknown> | undefined {
  if (text.trim() === '') return undefined
  // A megabyte of small objects would take far more event-loop time than its size suggests.
  if (judgeJson(Buffer.from(text), JSON_TEXT_LIMITS) !== undefined) {
    throw badJson('it has too many values or is nested too deeply')
  }
  let value: unknown
  try {
    // Editors and shells of Windows write a byte order mark first, which `trim` removes.
    value = JSON.parse(text.trim())
  } catch (error) {
    throw badJson('it is not valid JSON', error)
  }
  if (value === null) return undefined
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw badJson('an object is expected')
  }
  checkStorable(value)
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null))
}

function parseForm(text: string): Record<string, string> {
  if (text.split('&', FORM_FIELDS_MAX + 1).length > FORM_FIELDS_MAX) {
    throw badJson(`a form has at most ${FORM_FIELDS_MAX} fields`)
  }
  const fields = Object.fromEntries(new URLSearchParams(text))
  checkStorable(fields)
  return fields
}

function checkStorable(value: object): void {
  const fault = storageFault(value)
  if (fault !== undefined) throw badJson(`it ${fault}`)
}

/** 400 `bad_json` with the reason. */
export function badJson(reason: string, cause?: unknown): Error {
  return authFailure('bad_json', {
    message: `Could not parse request body as JSON: ${reason}`,
    cause,
  })
}
