import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'

import { defined } from '#shared/json.ts'
import { Engine } from '#workers/engine/engine.ts'
import type { ModelRunner } from '#workers/engine/model-runner.ts'

import { generate, greedy, MODELS, makeRequest, type RequestChanges } from './generate.ts'
import { closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'
import { OPTIONS } from './scheduling.ts'

afterEach(closeEngines)

const slowRequest = (at: number) => ({
  promptTokenIds: makePrompt(at, 5),
  maxNewTokens: 4,
  cacheScope: `slow ${at}`,
})

describe('an engine', () => {
  it.each(['model_quantized', 'model_uint8'])(
    'keeps rows apart where %s couples them through its quantization',
    async (onnxFile) => {
      const engine = await openEngine('llama', { onnxFile, prefillChunk: 8 })
      const prompts = [0, 1, 2].map((index) => makePrompt(index, 10 + 7 * index))
      const alone: number[][] = []
      for (const promptTokenIds of prompts) {
        alone.push((await generate(engine, { promptTokenIds })).tokenIds)
      }
      const runs = prompts.map((promptTokenIds, index) => {
        const generatedTokenIds = defined(alone[index]).slice(0, index)
        return generate(engine, { promptTokenIds, generatedTokenIds })
      })
      const together = await Promise.all(runs)
      const expected = alone.map((tokenIds, index) => tokenIds.slice(index))
      expect(together.map(({ tokenIds }) => tokenIds)).toEqual(expected)
    },
  )

  it.each([
    ['a right guess', (whole: number[], length: number) => whole.slice(length, length + 5)],
    [
      'a half right guess',
      (whole: number[], length: number) => [...whole.slice(length, length + 2), 1],
    ],
    ['a wrong guess', () => [1, 2, 3]],
    ['no guess', () => []],
  ])('gives the same tokens after %s', async (_name, guess) => {
    const engine = await openEngine('llama-in-place')
    const promptTokenIds = makePrompt(4, 12)
    const plain = await generate(engine, { promptTokenIds, maxNewTokens: 40, cacheScope: 'a' })
    const whole = [...promptTokenIds, ...plain.tokenIds]
    const before = engine.stats().steps
    const drafted = await generate(engine, {
      promptTokenIds,
      maxNewTokens: 40,
      cacheScope: 'b',
      propose: (tokenIds) => guess(whole, tokenIds.length),
    })
    expect(drafted.tokenIds).toEqual(plain.tokenIds)
    const numSteps = engine.stats().steps - before
    if (_name === 'a right guess') expect(numSteps).toBeLessThan(10)
    else expect(numSteps).toBeLessThanOrEqual(40)
  })

  it('runs old merged exports, whose branches take a whole prompt or one token', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-merged-'))
    copyFileSync(join(MODELS, 'llama/config.json'), join(folder, 'config.json'))
    const merged = join(MODELS, '../runtime/merged.onnx')
    copyFileSync(merged, join(folder, 'decoder_model_merged.onnx'))
    const plain = await openEngine('llama')
    const options = { folder, onnxFile: 'decoder_model_merged' }
    const engine = await openEngine('.', options)
    const onDevice = await openEngine('.', { ...options, ...ON_DEVICE })
    const prompts = [makePrompt(1, 30), makePrompt(2, 5)]
    const [expected, ...actual] = await Promise.all(
      [plain, engine, onDevice].map(async (each) => {
        const texts = prompts.map((promptTokenIds) => generate(each, { promptTokenIds }))
        return (await Promise.all(texts)).map(({ tokenIds }) => tokenIds)
      }),
    )
    expect(actual).toEqual([expected, expected])
    rmSync(folder, { recursive: true })
  })

  it.each([0, 7, 23])(
    'returns prompt logits from position %i on and caches the positions before',
    async (from) => {
      const engine = await openEngine('llama', { prefillChunk: 5 })
      const promptTokenIds = makePrompt(6, 24)
      const collect = async (changes: RequestChanges): Promise<Map<number, Float32Array>> => {
        const rows = new Map<number, Float32Array>()
        const onPromptLogits = (position: number, logits: Float32Array): void => {
          rows.set(position, logits.slice())
        }
        await generate(engine, { promptTokenIds, onPromptLogits, maxNewTokens: 0, ...changes })
        return rows
      }
      const whole = await collect({})
      const part = await collect({ promptLogitsFrom: from })
      expect([...whole.keys()]).toEqual(promptTokenIds.map((_, index) => index))
      expect([...part.keys()]).toEqual([...whole.keys()].slice(from))
      for (const [position, logits] of part) {
        const expected = defined(whole.get(position))
        const distances = logits.map((value, index) => Math.abs(value - defined(expected[index])))
        expect(Math.max(...distances)).toBeLessThan(1e-4)
      }
      expect(engine.stats().cachedTokens).toBe(from)
    },
  )

  it('numbers the sampler’s positions from the first generated token, across a resumption', async () => {
    const engine = await openEngine('llama-in-place')
    const positions: number[] = []
    const sampler = {
      next(logits: Float32Array, position: number) {
        positions.push(position)
        return greedy.next(logits, position)
      },
    }
    await generate(engine, { generatedTokenIds: [9, 9], maxNewTokens: 5, sampler })
    expect(positions).toEqual([2, 3, 4])
  })

  it('ends at an end token, at a stop, at the length and at the end of the context', async () => {
    const engine = await openEngine('llama-in-place', { maxContextTokens: 20 })
    const { tokenIds } = await generate(engine, { maxNewTokens: 6 })
    const endTokenIds = new Set([defined(tokenIds[2])])
    const expected = tokenIds.slice(0, tokenIds.indexOf(defined(tokenIds[2])))
    expect(await generate(engine, { endTokenIds })).toMatchObject({
      reason: 'endOfText',
      tokenIds: expected,
    })
    const stopped = await generate(engine, { onToken: ({ tokenId }) => tokenId !== tokenIds[1] })
    expect(stopped).toMatchObject({ reason: 'stopped', tokenIds: tokenIds.slice(0, 2) })
    expect((await generate(engine, { maxNewTokens: 0 })).tokenIds).toEqual([])
    const long = await generate(engine, { maxNewTokens: 100 })
    expect(long).toMatchObject({ reason: 'length', tokenIds: { length: 17 } })
    await expect(generate(engine, { promptTokenIds: makePrompt(0, 21) })).rejects.toMatchObject({
      code: 'context_length_exceeded',
    })
  })

  it('rejects an aborted sequence at once and gives its slot to the next', async () => {
    const engine = await openEngine('llama-in-place', { slots: 1 })
    const controller = new AbortController()
    let numTokens = 0
    const aborted = generate(engine, {
      maxNewTokens: 200,
      signal: controller.signal,
      onToken: () => {
        numTokens += 1
        if (numTokens === 3) controller.abort()
        return true
      },
    })
    const next = generate(engine, { promptTokenIds: makePrompt(1, 9) })
    await expect(aborted).rejects.toMatchObject({ name: 'CancelledError' })
    expect(numTokens).toBe(3)
    expect((await next).tokenIds).toHaveLength(16)
    expect(engine.stats()).toMatchObject({ active: 0, waiting: 0 })
  })

  it('fails only the sequence whose own code throws', async () => {
    const engine = await openEngine('llama')
    const failing = generate(engine, {
      onToken: () => {
        throw new Error('broken pipe')
      },
    })
    const other = generate(engine, { promptTokenIds: makePrompt(1, 9) })
    await expect(failing).rejects.toThrow('broken pipe')
    expect((await other).tokenIds).toHaveLength(16)
  })

  it('calls its listeners after every step, when the tokens of the step are there', async () => {
    const engine = await openEngine('llama-in-place')
    let numTokens = 0
    const seen: number[] = []
    engine.onStep(() => seen.push(numTokens))
    const onToken = (): boolean => {
      numTokens += 1
      return true
    }
    const counting = { onToken, maxNewTokens: 3 }
    await Promise.all([
      engine.run(makeRequest(counting), new AbortController()),
      engine.run(makeRequest({ ...counting, cacheScope: 'b' }), new AbortController()),
    ])
    expect(seen.at(-1)).toBe(6)
    expect(engine.stats()).toMatchObject({ tokens: 6, steps: seen.length })
  })

  it('lets the event loop run between rows that take long to sample', async () => {
    const engine = await openEngine('llama-in-place')
    const plain = await Promise.all([1, 2, 3].map((at) => generate(engine, slowRequest(at))))
    let turn = 0
    const turnsOfCalls: number[] = []
    let next = setImmediate(function count() {
      turn += 1
      next = setImmediate(count)
    })
    const slow = {
      next(logits: Float32Array) {
        const from = performance.now()
        while (performance.now() - from < 12) turnsOfCalls.push(turn)
        return greedy.next(logits, 0)
      },
    }
    const requests = [1, 2, 3].map((at) => generate(engine, { ...slowRequest(at), sampler: slow }))
    const answers = await Promise.all(requests)
    clearImmediate(next)
    expect(answers.map(({ tokenIds }) => tokenIds)).toEqual(plain.map(({ tokenIds }) => tokenIds))
    // Twelve tokens in six steps at most: rows of one step would otherwise share a turn.
    expect(new Set(turnsOfCalls).size).toBeGreaterThan(7)
  })

  it('lets the event loop run between the scores of a prompt', async () => {
    const engine = await openEngine('llama-in-place')
    let turn = 0
    let next = setImmediate(function count() {
      turn += 1
      next = setImmediate(count)
    })
    const turnsOfRows: number[] = []
    const onPromptLogits = () => {
      const from = performance.now()
      while (performance.now() - from < 12);
      turnsOfRows.push(turn)
    }
    const scored = { onPromptLogits, maxNewTokens: 1 }
    const answer = await generate(engine, scored)
    clearImmediate(next)
    expect(answer.tokenIds).toEqual((await generate(engine, { maxNewTokens: 1 })).tokenIds)
    expect(turnsOfRows.length).toBeGreaterThan(2)
    expect(new Set(turnsOfRows).size).toBe(turnsOfRows.length)
  })

  it('cancels running sequences when it closes', async () => {
    const engine = await openEngine('llama')
    const running = generate(engine, { maxNewTokens: 200 })
    const closing = engine.close()
    await expect(running).rejects.toMatchObject({ name: 'CancelledError' })
    await closing
    await expect(generate(engine)).rejects.toMatchObject({ name: 'CancelledError' })
  })
})

describe('a long prompt beside a text that continues', () => {
  const DECODE_MS = 32

  it.each([
    ['short', 0.1, 256],
    ['long', 4, 16],
  ])(
    'is run in chunks of the duration of a decode step if its tokens take %s',
    async (_, tokenMs, expected) => {
      vi.useFakeTimers({ toFake: ['performance'] })
      onTestFinished(() => void vi.useRealTimers())
      const chunks: number[] = []
      let isDecoding = false
      const runner: ModelRunner = {
        copyPrefix: () => undefined,
        async run(step) {
          if (step.kind === 'decode') isDecoding = true
          if (step.kind === 'prefill' && isDecoding) chunks.push(step.count)
          vi.advanceTimersByTime(step.kind === 'prefill' ? step.count * tokenMs : DECODE_MS)
          return { numRows: 1, row: () => new Float32Array(4) }
        },
        close: () => undefined,
      }
      const limits = { prefillChunk: 1024, contextLength: 4096, waitingMax: 4 }
      const engine = new Engine(runner, { ...OPTIONS, ...limits })
      const prompt = { promptTokenIds: makePrompt(1, 1024), maxNewTokens: 1, cacheScope: 'prompt' }
      let prompted: Promise<unknown> | undefined
      const begin = (): boolean => {
        prompted ??= isDecoding ? generate(engine, prompt) : undefined
        return true
      }
      await generate(engine, { maxNewTokens: 400, onToken: begin })
      await prompted
      expect(Math.max(...chunks)).toBe(expected)
      await engine.close()
    },
  )
})
