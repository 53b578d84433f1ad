import fc from 'fast-check'
import { afterAll, beforeAll, expect, it } from 'vitest'

import { SEED } from '#test/support/random.ts'
import { API_KEY } from '#test/support/tiers.ts'

import { nameOf, type Operation } from './document.ts'
import { FOUND } from './found.ts'
import { type OddRequest, oddRequests } from './numbers.ts'
import { type Claim, type FuzzRequest, requestsTo } from './requests.ts'
import { type FuzzTarget, openFuzzTarget } from './target.ts'
import { createJudge, type Judge } from './verdict.ts'
import { isFramed, NoAnswerError, send, type WireAnswer } from './wire.ts'

// FUZZ_REQUESTS says how many; FUZZ_SEED repeats a run; FUZZ_ONLY is a part of the operations'
// names.
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 1500)
const ONLY = process.env.FUZZ_ONLY ?? ''
const AT_ONCE = 6
const SHRINK_LIMIT_MS = 15_000
const SHOWN_MAX = 1500

interface Finding {
  readonly operation: string
  readonly seed: number
  readonly complaint: string
  /** The smallest request that is answered so. */
  readonly request: string
}

interface Count {
  readonly statuses: Map<number, number>
  readonly findings: Finding[]
}

let target: FuzzTarget
beforeAll(async () => {
  target = await openFuzzTarget()
}, 400_000)
afterAll(() => target?.close())

it(`requests of every kind to every operation (seed ${SEED})`, {
  timeout: 60_000 + REQUESTS * 200,
}, async () => {
  const operations = target.operations.filter((operation) => nameOf(operation).includes(ONLY))
  const hosts = [new URL(target.url).hostname, 'github.com']
  const judge = createJudge(hosts)
  const count: Count = { statuses: new Map(), findings: [] }
  const runs = Math.ceil(REQUESTS / operations.length)
  const left = [...operations]
  const flow = async (): Promise<void> => {
    for (let operation = left.shift(); operation !== undefined; operation = left.shift()) {
      await fuzz(operation, { judge, runs, count })
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, flow))
  const statuses = [...count.statuses].toSorted(([a], [b]) => a - b)
  process.stdout.write(
    `fuzzing | seed ${SEED} · operations ${operations.length} · requests ${runs * operations.length} · answers ${statuses.map(([status, times]) => `${status}: ${times}`).join(', ')} · findings ${count.findings.length}\n`,
  )
  for (const finding of count.findings) {
    process.stdout.write(`${JSON.stringify(finding)}\n${repetitionOf(finding, runs)}\n`)
  }
  for (const line of target.complaints().slice(0, 5)) process.stdout.write(`${line}\n`)
  // They are separate cases above.
  expect(count.findings.length).toBe(0)
  expect([target.api.isRunning(), target.worker.isRunning()]).toEqual([true, true])
  expect(target.complaints()).toEqual([])
  if (ONLY !== '') return
  // Most of what is well meant has to get through, or nothing behind the windows was tried.
  expect((count.statuses.get(200) ?? 0) / (runs * operations.length)).toBeGreaterThan(0.1)
})

it('a schema describes every parameter', () => {
  const odd = target.operations.flatMap(({ path, parameters }) =>
    parameters.filter(({ schema }) => typeof schema !== 'object').map(({ name }) => [path, name]),
  )
  expect(odd).toEqual([])
})

it.each(FOUND)('$what ($operation) gets the right answer', async (found) => {
  const operation = target.operations.find((one) => nameOf(one) === found.operation) as Operation
  const { method = operation.method, claim = 'own', headers = [] } = found
  const request = { claim, method, headers, target: found.target, body: found.body }
  const answer = await send(target.url, request, (await target.newClaims(operation))[claim])
  expect(answer.status).toBe(found.status)
  expect(createJudge([])(operation, request, answer)).toBeUndefined()
})

it('numbers, moments and ids out of bounds are refused by every parameter', async () => {
  const left = oddRequests(target.operations, target.known)
  expect(left.length).toBeGreaterThan(1000)
  const judge = createJudge([new URL(target.url).hostname, 'github.com'])
  const complaints: string[] = []
  const claims = new Map<string, Promise<Record<Claim, string>>>()
  const flow = async (): Promise<void> => {
    for (let odd = left.shift(); odd !== undefined; odd = left.shift()) {
      const { operation, request } = odd
      const key = operation.surface === 'v1' ? 'v1' : nameOf(operation)
      const own = claims.get(key) ?? target.newClaims(operation)
      claims.set(key, own)
      const answer = await send(target.url, request, (await own)[request.claim])
      const complaint = judge(operation, request, answer) ?? complaintOf(odd, answer)
      if (complaint !== undefined) complaints.push(`${show(odd.request)} → ${complaint}`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, flow))
  expect(complaints).toEqual([])
  expect(target.complaints()).toEqual([])
}, 180_000)

it('an empty path parameter is an unknown path in the dialect of its surface', async () => {
  const judge = createJudge([])
  const complaints: string[] = []
  let count = 0
  for (const operation of target.operations) {
    const claims = operation.surface === 'v1' ? { own: API_KEY } : { own: '' }
    // Behind the last parameter nothing follows, and an empty one is the address of the collection.
    for (const { 0: parameter, index } of operation.path.matchAll(/\{[^}]+\}(?=\/)/g)) {
      const after = operation.path.slice(index + parameter.length)
      const path = (operation.path.slice(0, index) + after).replaceAll(/\{[^}]+\}/g, 'x')
      const request = { claim: 'own', method: operation.method, headers: [], target: path } as const
      const answer = await send(target.url, { ...request, body: undefined }, claims.own)
      const complaint = judge(operation, { ...request, body: undefined }, answer)
      count += 1
      if (answer.status === 404 && complaint === undefined) continue
      complaints.push(`${nameOf(operation)}: ${answer.status} ${complaint ?? answer.body}`)
    }
  }
  expect(complaints).toEqual([])
  expect(count).toBeGreaterThan(15)
}, 60_000)

/** A refusal names the parameter at fault. */
function complaintOf({ name, isRefused }: OddRequest, { status, body }: WireAnswer) {
  const isNamed = (status === 400 || status === 422) && body.includes(name)
  return isRefused && !isNamed ? `${status}: ${body.slice(0, 200)}` : undefined
}

/**
 * Sends requests to one operation; each new complaint is traced to the smallest request that earns
 * it.
 */
async function fuzz(
  operation: Operation,
  { judge, runs, count }: { judge: Judge; runs: number; count: Count },
): Promise<void> {
  const seed = seedOf(operation)
  const claims = await target.newClaims(operation)
  const complain = (request: FuzzRequest) => judged(operation, request, { judge, claims, count })
  const seen = new Set<string>()
  const requests = requestsTo(operation, target.known)
  let wanted = ''
  const property = fc.asyncProperty(requests, async (request) => {
    const complaint = await complain(request)
    return complaint === undefined || kindOf(complaint) !== wanted
  })
  const values = fc.sample(property, { seed, numRuns: runs })
  for (const [index, [request]] of values.entries()) {
    const complaint = await complain(request)
    if (complaint === undefined || seen.has(kindOf(complaint))) continue
    wanted = kindOf(complaint)
    const { counterexample } = await fc.check(property, {
      seed,
      path: String(index),
      endOnFailure: false,
      interruptAfterTimeLimit: SHRINK_LIMIT_MS,
      markInterruptAsFailure: false,
    })
    const [smallest] = counterexample ?? [request]
    seen.add(wanted)
    count.findings.push({
      operation: nameOf(operation),
      seed: SEED,
      complaint,
      request: show(smallest),
    })
  }
}

async function judged(
  operation: Operation,
  request: FuzzRequest,
  { judge, claims, count }: { judge: Judge; claims: Record<Claim, string>; count: Count },
): Promise<string | undefined> {
  try {
    const answer = await send(target.url, request, claims[request.claim])
    count.statuses.set(answer.status, (count.statuses.get(answer.status) ?? 0) + 1)
    return judge(operation, request, answer)
  } catch (error) {
    // A client that announces more bytes than it sends, and leaves, receives no answer.
    if (error instanceof NoAnswerError) return isFramed(request) ? undefined : error.message
    throw error
  }
}

/** The command that sends the requests to one operation again, the same ones in the same order. */
function repetitionOf({ operation }: Finding, runs: number): string {
  const alike = target.operations.filter((other) => nameOf(other).includes(operation))
  const requests = runs * alike.length
  return `repeat: FUZZ_SEED=${SEED} FUZZ_REQUESTS=${requests} FUZZ_ONLY='${operation}' npm test -- test/fuzz/requests.test.ts`
}

/** The request as it was sent; what repeats itself at length is shown short. */
const show = (request: FuzzRequest): string =>
  JSON.stringify(request)
    .replaceAll(/(.{1,12}?)\1{30,}/g, (all, unit) => `${unit}{${all.length / unit.length} times}`)
    .slice(0, SHOWN_MAX)

/** Complaints that differ only in numbers and ids are of one kind. */
const kindOf = (complaint: string): string => complaint.replaceAll(/[0-9a-f-]{8,}|\d{4,}/g, '#')

function seedOf(operation: Operation): number {
  let seed = SEED
  for (const letter of nameOf(operation)) seed = (Math.imul(seed, 31) + letter.charCodeAt(0)) | 0
  return seed
}
