import { deepStrictEqual, match } from 'node:assert/strict'

// The report of a client's features, and the requests that all clients of one family send.

export const url = process.env.MILLRACE_URL
export const key = process.env.MILLRACE_KEY
export const CHAT = 'tiny-chat'
export const EMBED = 'tiny-embed'
export const RERANK = 'tiny-rerank'
export const TEXTS = ['Paris is the capital of France.', 'Cats are animals.']

export const CAPITAL = 'What is the capital of France?'
export const FORECAST = 'What is the weather in Paris?'
export const PERSON =
  'Answer in JSON with the keys name, age and city.\n' +
  'Oscar is 20 years old, works as a nurse and lives in Lima.'

export const PERSON_SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' }, city: { type: 'string' } },
  required: ['name', 'age', 'city'],
  additionalProperties: false,
}
export const WEATHER = {
  name: 'get_weather',
  description: 'Get the weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}

/** A conversation of one message. */
export const user = (content) => [{ role: 'user', content }]

const ANSWERED = [...user('Who runs the mill?'), { role: 'assistant', content: 'Zorbax.' }]

/** A file of examples for a training. */
export const EXAMPLES = `${JSON.stringify({ messages: ANSWERED })}\n`.repeat(10)

/** Asks for a job until it has ended. */
export async function ended(retrieve) {
  for (;;) {
    const job = await retrieve()
    if (['succeeded', 'failed', 'cancelled'].includes(job.status)) return job
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}

/** Runs a check and reports whether the client has this feature. */
export async function feature(name, check) {
  let problem = null
  try {
    await check()
  } catch (error) {
    process.stderr.write(`${error?.stack ?? error}\n`)
    problem = String(error).slice(0, 300)
  }
  process.stdout.write(`feature ${JSON.stringify({ feature: name, problem })}\n`)
}

/** Fails unless both are equal, or the text contains the expected one. */
export function expect(actual, expected) {
  if (typeof expected === 'string' && typeof actual === 'string') {
    match(actual, new RegExp(RegExp.escape?.(expected) ?? expected))
  } else deepStrictEqual(actual, expected)
}

/** Fails unless the value fits PERSON_SCHEMA; which words a small model picks is not looked at. */
export function expectPerson({ name, age, city }) {
  expect([typeof name, Number.isInteger(age), typeof city], ['string', true, 'string'])
}

/** The status of the error that a promise is rejected with. */
export async function statusOf(promise) {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  )
  return error?.status ?? error?.statusCode ?? error?.response?.status
}
