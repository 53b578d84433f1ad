import { describe, expect, it } from 'vitest'

import { Engine } from '#workers/engine/engine.ts'
import type { ModelRunner } from '#workers/engine/model-runner.ts'

import { generate } from './generate.ts'

const VOCABULARY = 8

/** A runner that records its calls, and whose copies fail a given number of times. */
function makeRunner(): ModelRunner & { readonly calls: string[]; failures: number } {
  return {
    calls: [],
    failures: 0,
    async copyPrefix(source, target, length) {
      await Promise.resolve()
      this.calls.push(`copy ${length} from ${source} to ${target}`)
      if (this.failures === 0) return
      this.failures -= 1
      throw new Error('the device is gone')
    },
    async run(step) {
      const sequences = 'sequences' in step ? step.sequences : [step.sequence]
      this.calls.push(`${step.kind} ${sequences.map(({ slot }) => slot)}`)
      return { numRows: 64, row: () => new Float32Array(VOCABULARY) }
    },
    close() {},
  }
}

function makeEngine(runner: ModelRunner): Engine {
  return new Engine(runner, {
    slots: 2,
    prefillChunk: 64,
    contextLength: 64,
    reusesPrefixes: true,
    givesAllLogits: true,
    batchesPrompts: 'none',
    draftMax: 0,
    waitingMax: 8,
  })
}

/** Shares its first 10 tokens with others of its kind; 30 more make a copy worth it. */
function makePrompt(last: number): number[] {
  return Array.from({ length: 40 }, (_, index) => (index < 10 ? 3 : last))
}

describe('a prefix that is copied between slots', () => {
  it('is copied before the first run that reads it', async () => {
    const runner = makeRunner()
    const engine = makeEngine(runner)
    await generate(engine, { promptTokenIds: makePrompt(4), maxNewTokens: 1 })
    const second = await generate(engine, { promptTokenIds: makePrompt(5), maxNewTokens: 1 })
    expect(second.cachedTokens).toBe(10)
    expect(runner.calls).toEqual(['prefill 0', 'copy 10 from 0 to 1', 'prefill 1'])
  })

  it('ends the running texts if it cannot be copied, and does not affect later ones', async () => {
    const runner = makeRunner()
    const engine = makeEngine(runner)
    await generate(engine, { promptTokenIds: makePrompt(4), maxNewTokens: 1 })
    runner.failures = 1
    const failing = generate(engine, { promptTokenIds: makePrompt(5), maxNewTokens: 1 })
    await expect(failing).rejects.toThrow('the device is gone')
    const next = await generate(engine, { promptTokenIds: makePrompt(6), maxNewTokens: 1 })
    expect(next).toMatchObject({ cachedTokens: 0, reason: 'length' })
    expect(runner.calls).toEqual(['prefill 0', 'copy 10 from 0 to 1', 'prefill 0'])
  })
})
