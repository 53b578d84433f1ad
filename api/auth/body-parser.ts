import type { FastifyInstance, FastifyRequest } from 'fastify'

import { JSON_TEXT_LIMITS, judgeJson } from '#shared/json.ts'

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

// Refuses values that Postgres cannot store: NUL characters, lone surrogates and numbers beyond the
// range.
function checkStorable(root: object): void {
  const pending: unknown[] = [root]
  while (pending.length > 0) {
    const value = pending.pop()
    if (typeof value === 'string') checkText(value)
    if (typeof value === 'number' && !Number.isFinite(value)) throw badJson('a number is too large')
    if (typeof value !== 'object' || value === null) continue
    for (const [name, inner] of Object.entries(value)) {
      if (name === '__proto__') throw badJson('it has a field named __proto__')
      checkText(name)
      pending.push(inner)
    }
  }
}

function checkText(text: string): void {
  if (text.includes('\u0000') || !text.isWellFormed()) {
    throw badJson('a string contains characters that cannot be stored')
  }
}

/** 400 `bad_json` with the reason. */
export function badJson(reason: string, cause?: unknown): Error {
  return authFailure('bad_json', {
    message: `Could not parse request body as JSON: ${reason}`,
    cause,
  })
}
