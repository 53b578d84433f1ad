import { readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { ClassifyInput } from '#shared/contracts/embedding.ts'
import { openClassifier } from '#workers/embedding/classifier.ts'
import type { ZeroShot } from '#workers/embedding/zero-shot.ts'
import { processEmbedding } from '#workers/processors/embedding.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded from the pipeline of transformers by test/fixtures/build-models.py.
const MODELS = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const readJson = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))

interface Golden {
  readonly asked: { text: string; labels: string[]; template: string; isMultiLabel: boolean }[]
  readonly orders: { modelLabels: string[]; scores: number[][] }[]
}

const CASES = ['nli', 'nli-bart', 'nli-deberta'].flatMap((family) => {
  const { asked, orders } = readJson(`${family}/golden.json`) as Golden
  return orders.map((order) => ({ family, asked, order, first: order.modelLabels[0] }))
})

describe.each(CASES)('labels of a request by $family, whose first is $first', async (model) => {
  const { family, asked, order } = model
  const runtime = openRuntime()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-nli-'))
  await cp(join(MODELS, family), folder, { recursive: true })
  const id2label = Object.fromEntries(order.modelLabels.entries())
  await writeFile(
    join(folder, 'config.json'),
    JSON.stringify({ ...readJson(`${family}/config.json`), id2label }),
  )
  const classifier = await openClassifier({ runtime, folder })
  const zeroShot = classifier.zeroShot as ZeroShot
  afterAll(async () => {
    await classifier.close()
    await runtime.close()
    await rm(folder, { recursive: true })
  })

  it.each([...asked.entries()])('have the probabilities of the reference (%i)', async (at, row) => {
    const hypotheses = row.labels.map((label) => row.template.replace('{}', label))
    const pairs = [...zeroShot.readPairs([row.text], hypotheses, undefined)]
    const logits = await Promise.all(pairs.map((pair) => classifier.logits(pair, FOREVER)))
    const probabilities = zeroShot.toProbabilities(logits, row.isMultiLabel)
    for (const [index, score] of (order.scores[at] as number[]).entries()) {
      expect(probabilities[index]).toBeCloseTo(score, 4)
    }
  })

  it('are answered for several texts of one job', async () => {
    const rows = asked.filter(({ isMultiLabel }) => isMultiLabel)
    const { labels = [], template = '' } = rows[0] ?? {}
    const hypotheses = labels.map((label) => template.replace('{}', label))
    const answer = await run({
      items: rows.map(({ text }) => text),
      zeroShot: { labels, hypotheses, isMultiLabel: true },
    })
    expect(answer.labels).toEqual(labels)
    for (const [index, row] of rows.entries()) {
      const scores = order.scores[asked.indexOf(row)] as number[]
      for (const [label, score] of scores.entries()) {
        expect(answer.probabilities[index]?.[label]).toBeCloseTo(score, 4)
      }
    }
  })

  it('are refused beyond the number that one answer may have', async () => {
    await expect(run({ items: Array(33_334).fill('a') })).rejects.toMatchObject({ param: 'input' })
  })

  /** The reply of the processor to a job. */
  async function run(fields: Pick<ClassifyInput, 'items'> & Partial<ClassifyInput>) {
    const input = { task: 'classify', hasMarkers: true, isActivated: true, ...fields }
    const job = { kind: 'embedding', modelId: 'nli', enqueuedAtMs: 0, input }
    const model = { task: 'classify', classifier }
    let found: { labels: string[]; probabilities: number[][] } | undefined
    const reply = {
      started: () => {},
      result: (result: NonNullable<typeof found>) => {
        found = result
      },
    }
    const tools = { reply, signal: FOREVER, clock: systemClock, model }
    await processEmbedding(job as never, tools as never)
    return found as NonNullable<typeof found>
  }

  it('cuts texts to the requested number of tokens, and refuses long labels', () => {
    const [pair] = zeroShot.readPairs(['fox '.repeat(99)], ['a river'], 20)
    expect(pair?.tokenIds).toHaveLength(20)
    expect(() => [...zeroShot.readPairs(['a'], ['fox '.repeat(99)], undefined)]).toThrow(
      expect.objectContaining({ param: 'candidate_labels' }),
    )
    expect(() => [...zeroShot.readPairs(['a'], ['a'], 65)]).toThrow(
      expect.objectContaining({ param: 'truncate_prompt_tokens' }),
    )
  })
})

// BART takes the vector of the last end token, and finds it by the number of them in a batch.
describe('a classifier that reads the vector of the end token', async () => {
  const runtime = openRuntime()
  const classifier = await openClassifier({ runtime, folder: join(MODELS, 'nli-bart') })
  afterAll(async () => {
    await classifier.close()
    await runtime.close()
  })

  it('gives the same logits in a batch with texts that have a different number of end tokens', async () => {
    const [pair = { tokenIds: [] }] = classifier.zeroShot?.readPairs(['fox'], ['river'], 64) ?? []
    const [plain = []] = await classifier.read('fox', { hasMarkers: true })
    const texts = [pair, { tokenIds: plain }, pair, { tokenIds: [...plain, 2] }, pair]
    const together = await Promise.all(texts.map((text) => classifier.logits(text, FOREVER)))
    for (const [index, text] of texts.entries()) {
      const alone = await classifier.logits(text, FOREVER)
      for (const [at, logit] of alone.entries()) expect(together[index]?.[at]).toBeCloseTo(logit, 5)
    }
  })

  it('refuses texts without one', async () => {
    const refused = { param: 'input', code: 'invalid_value' }
    await expect(classifier.read('fox', { hasMarkers: false })).rejects.toMatchObject(refused)
    await expect(classifier.read([5, 6], { hasMarkers: true })).rejects.toMatchObject(refused)
  })
})
