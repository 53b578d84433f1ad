import { addressOf } from './place.js'
import { messageIn, Problem, problemOf } from './problem.js'
import { bearer } from './session.js'

/**
 * A request to the API, as it is sent and as it is shown.
 * @typedef {{ path: string, json?: Record<string, unknown>, form?: readonly (readonly [string,
 * string | File])[] }} ApiRequest
 */

/**
 * Sends a request; resolves with its successful answer.
 * @param {ApiRequest} request @param {AbortSignal} [signal] @returns {Promise<Response>}
 */
export async function send({ path, json, form }, signal) {
  /** @type {Record<string, string>} */
  const headers = { authorization: `Bearer ${await bearer()}` }
  /** @type {RequestInit} */
  const init = { method: 'GET', headers, signal: signal ?? null }
  if (json !== undefined) {
    headers['content-type'] = 'application/json'
    Object.assign(init, { method: 'POST', body: JSON.stringify(json) })
  }
  if (form !== undefined) {
    const body = new FormData()
    for (const [name, value] of form) body.append(name, value)
    Object.assign(init, { method: 'POST', body })
  }
  const response = await fetch(addressOf(path), init)
  if (!response.ok) throw await problemOf(response)
  return response
}

/**
 * The parsed events of a stream, until `[DONE]`. Throws the error event of a stream.
 * @param {Response} response @returns {AsyncGenerator<any>}
 */
export async function* eventsOf(response) {
  const stream = response.body
  if (stream === null) return
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) throw new Problem('The answer broke off.')
      const events = (rest + value).split('\n\n')
      rest = events.pop() ?? ''
      for (const event of events) {
        const data = dataOf(event)
        if (data === '[DONE]') return
        if (data === '') continue
        const parsed = JSON.parse(data)
        if (parsed.error !== undefined)
          throw new Problem(messageIn(data) || 'The answer broke off.')
        yield parsed
      }
    }
  } finally {
    // A consumer that stops early cancels the request.
    await reader.cancel().catch(() => undefined)
  }
}

/** @param {string} event */
function dataOf(event) {
  return event
    .split('\n')
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n')
}
