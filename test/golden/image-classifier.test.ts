import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { openImageClassifier } from '#workers/embedding/image-classifier.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** Reference numbers, made by test/fixtures/build-models.py with transformers (see `source`). */
interface Golden {
  readonly labels: readonly string[]
  readonly logits: readonly (readonly number[])[]
  readonly probabilities: readonly (readonly number[])[]
}

const MODELS = join(import.meta.dirname, '../fixtures/models')
const read = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
const FILES = (read('vision-images.json') as string[]).map((file) => Buffer.from(file, 'base64'))
const golden = read('vit-classifier/golden.json') as Golden
const options = { param: 'input', signal: new AbortController().signal }
const runtime = openRuntime()
const classifier = await openImageClassifier({ runtime, folder: join(MODELS, 'vit-classifier') })
afterAll(async () => {
  await classifier.tower.close()
  await runtime.close()
})

function expectClose(rows: readonly (readonly number[])[], references: Golden['logits']): void {
  expect(rows.map(({ length }) => length)).toEqual(references.map(({ length }) => length))
  for (const [at, row] of rows.entries()) {
    for (const [index, value] of row.entries()) {
      expect(value).toBeCloseTo(references[at]?.[index] ?? Number.NaN, 4)
    }
  }
}

it('gives the logits and the probabilities of images, alone and together', async () => {
  const encode = async (file: Buffer) => [...(await classifier.tower.encode(file, options))]
  const rows = await Promise.all(FILES.map(encode))
  expect(classifier.labels).toEqual(golden.labels)
  expectClose(rows, golden.logits)
  expectClose(rows.map(classifier.toProbabilities), golden.probabilities)
  expectClose([await encode(FILES[1] as Buffer)], [golden.logits[1] ?? []])
})

it('is not opened with a model that detects objects', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-detector-'))
  cpSync(join(MODELS, 'vit-classifier'), folder, { recursive: true })
  writeFileSync(join(folder, 'config.json'), '{"architectures": ["DetrForObjectDetection"]}')
  const opening = openImageClassifier({ runtime, folder })
  await expect(opening).rejects.toThrow(
    'not a classifier of whole images: its class is DetrForObjectDetection',
  )
  rmSync(folder, { recursive: true })
})

it.each(['clip', 'minilm'])(
  'is not opened with %s, which has no logits of images',
  async (name) => {
    const opening = openImageClassifier({ runtime, folder: join(MODELS, name) })
    await expect(opening).rejects.toThrow()
  },
)
