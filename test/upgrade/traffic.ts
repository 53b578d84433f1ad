import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { API_KEY } from '#test/support/tiers.ts'

/** One request that did not end as it must. */
export interface Fault {
  readonly kind: string
  readonly url: string
  readonly reason: string
}

/** Requests of every family, sent without pause to any API process of the list. */
export interface Traffic {
  readonly faults: readonly Fault[]
  /** Requests that were answered, by kind. */
  readonly counts: Readonly<Record<string, number>>
  /** Resolves when each kind was answered so often again. */
  settle(times: number): Promise<void>
  stop(): Promise<void>
}

type Send = (url: string) => Promise<void>

const FAULTS_MAX = 20
const SETTLE_TIMEOUT_MS = 180_000
// Ids 0, 1 and 2 end the text of the shipped model; without them it goes on to the limit.
const ENDLESS = { '0': -100, '1': -100, '2': -100 }
const LONG_ANSWER = { model: 'tiny-chat', prompt: 'Once upon a time', logit_bias: ENDLESS }

/** Starts the traffic; `pick` is the balancer. No request is ever sent twice. */
export async function startTraffic(pick: () => string): Promise<Traffic> {
  const kinds: Record<string, Send> = {
    stream,
    chat,
    embeddings,
    files,
    activities,
    session: await openSession(pick()),
  }
  const counts: Record<string, number> = {}
  const faults: Fault[] = []
  let isStopped = false
  const loops = Object.entries(kinds).map(async ([kind, send]) => {
    counts[kind] = 0
    while (!isStopped && faults.length < FAULTS_MAX) {
      const url = pick()
      try {
        await send(url)
        counts[kind] = (counts[kind] ?? 0) + 1
      } catch (error) {
        const { message, cause } = error as Error
        faults.push({ kind, url, reason: cause === undefined ? message : `${message}: ${cause}` })
      }
    }
  })
  return {
    faults,
    counts,
    async settle(times) {
      const before = { ...counts }
      const until = performance.now() + SETTLE_TIMEOUT_MS
      const isSettled = (): boolean =>
        Object.keys(kinds).every((kind) => (counts[kind] ?? 0) >= (before[kind] ?? 0) + times)
      while (!isSettled() && faults.length === 0) {
        if (performance.now() > until) throw new Error(`not every kind was answered ${times} times`)
        await sleep(50)
      }
    },
    async stop() {
      isStopped = true
      await Promise.all(loops)
    },
  }
}

async function stream(url: string): Promise<void> {
  const body = { ...LONG_ANSWER, max_tokens: 200, stream: true }
  const text = await (await post(url, '/v1/completions', body)).text()
  assert.match(text, /data: \[DONE\]\n\n$/, 'the stream is not whole')
  assert.doesNotMatch(text, /"error"/, 'the stream has an error')
}

async function chat(url: string): Promise<void> {
  const messages = [{ role: 'user', content: 'What is the capital of France?' }]
  const answer = await post(url, '/v1/chat/completions', { model: 'tiny-chat', messages })
  const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] }
  assert.notEqual(choices[0]?.message.content ?? '', '', 'the chat is empty')
}

async function embeddings(url: string): Promise<void> {
  const answer = await post(url, '/v1/embeddings', { model: 'tiny-embed', input: ['one', 'two'] })
  const { data } = (await answer.json()) as { data: unknown[] }
  assert.equal(data.length, 2)
}

async function files(url: string): Promise<void> {
  const text = `written at ${performance.now()}`
  const form = new FormData()
  form.append('purpose', 'user_data')
  form.append('file', new Blob([text]), 'a.txt')
  const made = await mustBeOk(
    await fetch(`${url}/v1/files`, { ...WITH_KEY, method: 'POST', body: form }),
  )
  const { id } = (await made.json()) as { id: string }
  const read = await mustBeOk(await fetch(`${url}/v1/files/${id}/content`, WITH_KEY))
  assert.equal(await read.text(), text)
  await mustBeOk(await fetch(`${url}/v1/files/${id}`, { ...WITH_KEY, method: 'DELETE' }))
}

async function activities(url: string): Promise<void> {
  const made = await post(url, '/v1/activities', { type: 'View', object: 'doc:1' })
  const { id } = (await made.json()) as { id: string }
  await mustBeOk(await fetch(`${url}/v1/activities/${id}`, WITH_KEY))
}

/** Signs a user up, and continues with the session of the refresh before, from any process. */
async function openSession(url: string): Promise<Send> {
  const body = { email: `upgrade-${process.pid}@example.test`, password: 'a long pass phrase' }
  const signedUp = await post(url, '/auth/v1/signup', body)
  let { refresh_token } = (await signedUp.json()) as { refresh_token: string }
  return async (now) => {
    const path = '/auth/v1/token?grant_type=refresh_token'
    const session = (await (await post(now, path, { refresh_token })).json()) as {
      access_token: string
      refresh_token: string
    }
    refresh_token = session.refresh_token
    const authorization = `Bearer ${session.access_token}`
    await mustBeOk(await fetch(`${now}/auth/v1/user`, { headers: { authorization } }))
    // Its limits are an address's own: a few in a second are what one person does.
    await sleep(200)
  }
}

const WITH_KEY = { headers: { authorization: `Bearer ${API_KEY}` } }

async function post(url: string, path: string, body: unknown): Promise<Response> {
  const headers = { ...WITH_KEY.headers, 'content-type': 'application/json' }
  return mustBeOk(await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) }))
}

async function mustBeOk(answer: Response): Promise<Response> {
  if (answer.ok) return answer
  throw new Error(`${answer.url} answered ${answer.status}: ${(await answer.text()).slice(0, 300)}`)
}
