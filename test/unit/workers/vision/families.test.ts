import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, it } from 'vitest'

import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { ImageShapeError, readVisionRules } from '#workers/vision/families.ts'

const read = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
const rulesOf = (name: string) =>
  readVisionRules(read(`${name}/config.json`), read(`${name}/preprocessor_config.json`))
const WIDE = { width: 60, height: 20 }

it.each([
  [
    'smolvlm',
    'high',
    [
      { width: 32, height: 10 },
      { width: 32, height: 16 },
    ],
    2,
  ],
  [
    'smolvlm',
    'low',
    [
      { width: 32, height: 10 },
      { width: 16, height: 16 },
    ],
    1,
  ],
  ['qwen2-vl', 'high', [{ width: 64, height: 16 }], 1],
  ['llava', 'high', [{ width: 84, height: 28 }], 1],
] as const)('%s resizes a wide image at detail %s', (name, detail, sizes, tiles) => {
  const layout = rulesOf(name).layout(WIDE, detail)
  expect(layout.sizes).toEqual(sizes)
  expect(layout.tiles).toHaveLength(tiles)
})

it.each(['llava', 'qwen2-vl'])('%s refuses lines of pixels', (name) => {
  expect(() => rulesOf(name).layout({ width: 4000, height: 1 }, 'high')).toThrow(ImageShapeError)
})

it('names the family that it does not know, and what a file lacks', () => {
  expect(() => readVisionRules({ model_type: 'gemma3' }, {})).toThrow(/"gemma3", only for llava/)
  expect(() => readVisionRules({ model_type: 'smolvlm' }, {})).toThrow(/no "size"/)
})
