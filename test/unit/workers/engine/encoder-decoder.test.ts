import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { SourceEncoder } from '#workers/engine/encoder-decoder/source-encoder.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { generate, MODELS } from './generate.ts'

const folder = join(MODELS, 't5')
const { cases, start } = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as {
  cases: { ids: number[]; greedy: number[] }[]
  start: number[]
}

const runtime = openRuntime()
/** Tensors over memory of this process that have not been disposed of. */
const live = new Set<Tensor>()
let engine: TextEngine

beforeAll(async () => {
  const watched = {
    ...runtime,
    tensor: (...args: Parameters<typeof runtime.tensor>) => {
      const tensor = runtime.tensor(...args)
      live.add(tensor)
      return tensor
    },
  }
  engine = await openTextEngine({ runtime: watched, folder, slots: 3, intraOpThreads: 1 })
})
afterAll(async () => {
  await engine.close()
  await runtime.close()
})

function request(index: number, maxNewTokens = 12) {
  const { ids } = defined(cases[index])
  return {
    promptTokenIds: ids,
    source: { length: ids.length, startTokenIds: start },
    maxNewTokens,
  }
}

const countLive = () => [...live].filter(({ isDisposed }) => !isDisposed).length

it('gives the same tokens to texts that begin and end at any step', async () => {
  const later: Promise<{ tokenIds: number[] }>[] = []
  let count = 0
  const first = generate(engine, {
    ...request(0),
    onToken() {
      count += 1
      // Two together, one alone, and one that waits for a slot.
      if (count === 2) later.push(generate(engine, request(1, 5)), generate(engine, request(2)))
      if (count === 5) later.push(generate(engine, request(3)))
      return true
    },
  })
  expect((await first).tokenIds).toEqual(cases[0]?.greedy)
  const [short, long, last] = (await Promise.all(later)).map(({ tokenIds }) => tokenIds)
  expect(short).toEqual(cases[1]?.greedy.slice(0, 5))
  expect([long, last]).toEqual([cases[2]?.greedy, cases[3]?.greedy])
})

it('computes prompts of equal and of different starts in one step', async () => {
  const forced = (index: number) => {
    const asked = request(index, 6)
    return { ...asked, source: { ...asked.source, startTokenIds: [...start, 7] } }
  }
  const requests = [request(0, 6), forced(1), request(3, 6)]
  const expected: number[][] = []
  for (const one of requests) expected.push((await generate(engine, one)).tokenIds)
  const { steps } = engine.stats()
  const together = await Promise.all(requests.map((one) => generate(engine, one)))
  expect(together.map(({ tokenIds }) => tokenIds)).toEqual(expected)
  expect(engine.stats().steps - steps).toBe(6)
})

it('frees the states of texts that have ended or were cancelled', async () => {
  await generate(engine, request(0))
  const leaving = new AbortController()
  const cancelled = generate(engine, {
    ...request(2),
    signal: leaving.signal,
    onToken() {
      leaving.abort()
      return true
    },
  })
  await expect(cancelled).rejects.toMatchObject({ name: 'CancelledError' })
  await expect.poll(countLive).toBe(0)
  expect(engine.stats()).toMatchObject({ active: 0, waiting: 0 })
})

it('refuses adapters and a text beyond the positions of the encoder', async () => {
  await expect(engine.fitAdapter({} as never)).rejects.toThrow('adapters of encoder-decoders')
  const ids = Array.from({ length: 65 }, () => 5)
  const long = { promptTokenIds: ids, source: { length: 65, startTokenIds: start } }
  await expect(generate(engine, long)).rejects.toMatchObject({ code: 'context_length_exceeded' })
})

it.each([
  ['ids of another type', [{ name: 'input_ids', type: 'int32' }], 'last_hidden_state'],
  ['no ids', [{ name: 'attention_mask', type: 'int64' }], 'last_hidden_state'],
  ['no states', [{ name: 'input_ids', type: 'int64' }], 'pooler_output'],
])('refuses an encoder with %s', (_, inputs, output) => {
  const session = { file: 'encoder.onnx', inputs, outputs: [{ name: output }] }
  expect(() => new SourceEncoder(runtime, session as unknown as ModelSession, 'float32')).toThrow(
    'must make last_hidden_state from input_ids of type int64',
  )
})

it('has no more positions than the tables of its graphs', async () => {
  const longer = mkdtempSync(join(tmpdir(), 'millrace-pair-'))
  cpSync(join(MODELS, 'bart'), longer, { recursive: true })
  const config = JSON.parse(readFileSync(join(longer, 'config.json'), 'utf8')) as object
  const changed = { ...config, max_position_embeddings: 4096 }
  writeFileSync(join(longer, 'config.json'), JSON.stringify(changed))
  const options = { runtime, slots: 1, intraOpThreads: 1 }
  const stated = await openTextEngine({ ...options, folder: join(MODELS, 'bart') })
  const opened = await openTextEngine({ ...options, folder: longer })
  expect(opened.contextLength).toBe(stated.contextLength)
  await Promise.all([stated.close(), opened.close()])
  rmSync(longer, { recursive: true })
})
