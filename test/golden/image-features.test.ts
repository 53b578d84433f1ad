import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openImageTower } from '#workers/embedding/image-tower.ts'
import { normalize } from '#workers/embedding/pooling.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** Reference numbers, made by test/fixtures/build-models.py with transformers (see `source`). */
interface Golden {
  /** The vectors of the first tokens of images, of length 1. */
  readonly first: readonly (readonly number[])[]
  readonly mean: readonly (readonly number[])[]
}

const MODELS = join(import.meta.dirname, '../fixtures/models')
const read = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
const FILES = (read('vision-images.json') as string[]).map((file) => Buffer.from(file, 'base64'))
const options = { param: 'input', signal: new AbortController().signal }
const runtime = openRuntime()
afterAll(() => runtime.close())

describe.each([
  ['dinov2', undefined, 'first'],
  ['dinov2', 'mean', 'mean'],
  ['ijepa', undefined, 'mean'],
  ['ijepa', 'cls', 'first'],
  ['resnet', undefined, 'mean'],
] as const)('the features of images by %s, pooled by %s', (name, pooling, expected) => {
  it('give the vectors of the reference, alone and together', async () => {
    const golden = read(`${name}/golden.json`) as Golden
    const file = join(MODELS, name, 'onnx/model.onnx')
    const outputs = ['pooler_output', 'last_hidden_state']
    const how = { folder: join(MODELS, name), file, outputs, width: undefined, pooling }
    const tower = await openImageTower({ runtime, ...how })
    try {
      const encode = async (image: Buffer) => normalize(await tower.encode(image, options))
      const together = await Promise.all(FILES.map(encode))
      const alone = [await encode(FILES[0] as Buffer)]
      for (const vectors of [together, alone]) {
        for (const [row, vector] of vectors.entries()) {
          expect(vector).toHaveLength(golden[expected][row]?.length ?? 0)
          for (const [at, value] of vector.entries()) {
            expect(value).toBeCloseTo(golden[expected][row]?.[at] ?? Number.NaN, 4)
          }
        }
      }
    } finally {
      await tower.close()
    }
  })
})
