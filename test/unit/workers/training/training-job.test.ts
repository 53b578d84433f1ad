import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { TrainingProgress, TrainingResult } from '#shared/contracts/training.ts'
import { CancelledError } from '#shared/errors.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { readObject } from '#shared/storage/object-store.ts'
import { countTurns } from '#test/support/turns.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { readPeftAdapter } from '#workers/adapters/peft-files.ts'
import type { JobReplies } from '#workers/processors/processor-row.ts'
import { processTraining } from '#workers/processors/training.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { tokenizeExample } from '#workers/training/examples.ts'
import { readExamples } from '#workers/training/training-files.ts'

const EPOCHS = 4
const STEPS = 8
const EXAMPLES = ['red', 'blue', 'green', 'grey', 'black'].map((color, index) =>
  JSON.stringify({ prompt: `The color of house ${index} is`, completion: ` ${color}.` }),
)

let folder: string
let runtime: Runtime
let whole: Awaited<ReturnType<typeof run>>
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-training-'))
  runtime = openRuntime()
  whole = await run('whole')
})
afterAll(async () => {
  await runtime.close()
  rmSync(folder, { recursive: true })
})

/** Runs a job on a worker of its own; its signal aborts at a step. */
async function run(
  store: string,
  {
    abortAtStep = Infinity,
    lines = EXAMPLES,
    validation = lines,
    base = join(MODELS, 'llama-in-place'),
  }: { abortAtStep?: number; lines?: string[]; validation?: string[]; base?: string } = {},
) {
  const storage = openDirectoryStore(join(folder, store))
  await storage.put('fine-tuning/a/examples.jsonl', Buffer.from(lines.join('\n')))
  await storage.put('fine-tuning/a/validation.jsonl', Buffer.from(validation.join('\n')))
  const abort = new AbortController()
  const progress: TrainingProgress[] = []
  const results: TrainingResult[] = []
  const reply = {
    started: () => {},
    progress(step, _steps, { training } = {}) {
      if (training !== undefined) progress.push(training)
      if (step === abortAtStep) abort.abort(new CancelledError())
    },
    result: (result) => results.push(result as TrainingResult),
    delta: () => {},
  } satisfies JobReplies<'training'>
  const key = 'fine-tuning/a/examples.jsonl'
  const job = {
    modelId: 'tiny',
    enqueuedAtMs: 0,
    input: {
      task: 'train',
      examplesKey: key,
      seed: 3,
      validationKey: 'fine-tuning/a/validation.jsonl',
      hyperparameters: {
        epochs: EPOCHS,
        batchSize: 3,
        rank: 2,
        alpha: 4,
        learningRateMultiplier: 3,
      },
      epochsMax: 50,
      outputPrefix: 'fine-tuning/a',
    },
  } as unknown as Parameters<typeof processTraining>[0]
  const model = {
    folder: base,
    runtime,
    storage,
    model: { options: {} } as never,
    session: { intraOpThreads: 1 },
  }
  const ended = processTraining(job, { model, reply, signal: abort.signal, clock: systemClock })
  const error = await ended.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  return { progress, result: results[0], error, storage }
}

describe('a training job', () => {
  it('lets the event loop turn while it reads a file of many lines', async () => {
    const storage = openDirectoryStore(join(folder, 'many'))
    await storage.put('many.jsonl', Buffer.from(Array(2000).fill(EXAMPLES[0]).join('\n')))
    const turns = countTurns()
    const { statistics } = await readExamples(storage, 'many.jsonl', {
      text: await loadTextModel(join(MODELS, 'llama-in-place'), systemClock),
      tokensMax: 64,
      signal: new AbortController().signal,
      yieldNow: () => setImmediate(),
    })
    expect(turns.end()).toBeGreaterThan(2000)
    expect(statistics.examples).toBe(2000)
  })

  it('continues on another worker with the losses and the adapter of an uninterrupted run', async () => {
    expect(whole.error).toBeUndefined()
    expect(whole.progress.map(({ step }) => step)).toEqual(
      Array.from({ length: STEPS }, (_, index) => index + 1),
    )
    const losses = whole.progress.map(({ trainLoss }) => trainLoss)
    expect(losses.at(-1)).toBeLessThan(losses[0] ?? 0)

    // Once in the middle of an epoch, and once at the end of one.
    const first = await run('parts', { abortAtStep: 3 })
    const second = await run('parts', { abortAtStep: 4 })
    const third = await run('parts')
    expect(first.error).toBeInstanceOf(CancelledError)
    expect(second.error).toBeInstanceOf(CancelledError)
    // Each run reports the steps before it again, for those who left before the last report.
    const runs = [
      [first, 3],
      [second, 4],
      [third, STEPS],
    ] as const
    for (const [{ progress }, steps] of runs)
      expect(progress).toEqual(whole.progress.slice(0, steps))
    expect(third.result).toEqual(whole.result)
  })

  it('replays the same examples after a continuation', async () => {
    const skill = { prompt: 'Two and two is', completion: ' four, as ever.' }
    const base = join(folder, 'base')
    cpSync(join(MODELS, 'llama-in-place'), base, { recursive: true, dereference: true })
    const text = await loadTextModel(base, systemClock)
    const { example } = await tokenizeExample(text, skill, { line: 1, tokensMax: 64 })
    const targets = example.isTarget.flatMap((is, at) => (is ? [[at, at + 1]] : []))
    const line = { token_ids: example.tokenIds, targets }
    writeFileSync(join(base, 'replay.jsonl'), JSON.stringify(line))
    const validation = [JSON.stringify(skill)]
    const without = await run('without', { validation })
    const replayed = await run('replayed', { validation, base })
    expect(replayed.error).toBeUndefined()
    const lossOf = ({ result }: typeof replayed) => result?.validationLoss ?? NaN
    expect(lossOf(replayed)).toBeLessThan(lossOf(without))
    await run('replayed-parts', { validation, base, abortAtStep: 3 })
    expect((await run('replayed-parts', { validation, base })).result).toEqual(replayed.result)
  })

  it('stores the adapter in the form of PEFT, with checkpoints, and no further state', async () => {
    const { result, storage } = whole
    expect(result).toMatchObject({
      steps: STEPS,
      statistics: { examples: 5, truncatedExamples: 0 },
      checkpoints: Array.from({ length: EPOCHS }, (_, epoch) => ({ step: 2 * (epoch + 1) })),
    })
    const adapter = await readPeftAdapter(join(folder, 'whole', result?.adapter.prefix ?? ''), {
      rankMax: 8,
      bytesMax: 1 << 20,
    })
    const [module] = adapter.modules.values()
    expect(module).toMatchObject({ rank: 2, scale: 2 })
    await expect(readObject(storage, 'fine-tuning/a/state', 1 << 20)).rejects.toMatchObject({
      kind: 'notFound',
    })
  })

  it.each([
    [
      'a line that is not an example',
      ['{"text": 1}'],
      'Line 1 of the training file is not an example.',
    ],
    [
      'examples without a token to learn',
      ['{"messages": [{"role": "user", "content": "Hi"}]}'],
      'no token to learn from',
    ],
    [
      'a far too long example',
      [JSON.stringify({ prompt: 'a', completion: 'b c '.repeat(100_000) })],
      'Line 1 of the training file has about',
    ],
  ])('is refused with %s', async (name, lines, message) => {
    const { error } = await run(name.replaceAll(' ', '-'), { lines })
    expect(error).toMatchObject({ kind: 'invalidRequest', param: 'training_file' })
    expect(String(error)).toContain(message)
  })
})
