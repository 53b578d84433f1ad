import { join } from 'node:path'

import { expect, it } from 'vitest'

import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { rulesOf } from '#workers/vision/families.ts'
import { ImageShapeError } from '#workers/vision/processor-file.ts'
import { readVisionRules } from '#workers/vision/vision-rules.ts'

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
  ['gemma3-vision', 'high', [{ width: 16, height: 16 }], 1],
  ['qwen2.5-vl', 'high', [{ width: 64, height: 16 }], 1],
] as const)('%s resizes a wide image at detail %s', async (name, detail, sizes, tiles) => {
  const layout = (await readVisionRules(join(MODELS, name))).layout(WIDE, detail)
  expect(layout.sizes).toEqual(sizes)
  expect(layout.tiles).toHaveLength(tiles)
})

it.each(['llava', 'qwen2-vl'])('%s refuses lines of pixels', async (name) => {
  const rules = await readVisionRules(join(MODELS, name))
  expect(() => rules.layout({ width: 4000, height: 1 }, 'high')).toThrow(ImageShapeError)
})

it('names an unknown family, and the missing part of a file', () => {
  expect(() => rulesOf({ model_type: 'phi3_v' }, {})).toThrow(/"phi3_v", only for llava/)
  expect(() => rulesOf({ model_type: 'florence2' }, {})).toThrow(/"florence2": it writes with an/)
  expect(() => rulesOf({ model_type: 'smolvlm' }, {})).toThrow(/no "size"/)
  const panned = { do_pan_and_scan: true }
  expect(() => rulesOf({ model_type: 'gemma3' }, panned)).toThrow(/"do_pan_and_scan" is not/)
})

it('counts pixels of older files before the size of newer ones, as transformers does', () => {
  const size = { shortest_edge: 56 * 56, longest_edge: 28 * 28 * 1280 }
  const channels = { image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] }
  const image = { width: 1000, height: 1000 }
  const config = { model_type: 'qwen2_5_vl', image_token_id: 5 }
  const resized = (processor: object) =>
    rulesOf(config, { ...channels, ...processor }).layout(image, 'high').tile
  expect(resized({ size })).toEqual({ width: 980, height: 980 })
  expect(resized({ size, max_pixels: 28 * 28 * 4 })).toEqual({ width: 56, height: 56 })
  expect(resized({ size: { max_pixels: 28 * 28 * 9 } })).toEqual({ width: 84, height: 84 })
})

it('bounds the tokens of an image by default and by option, and refuses an option without effect', () => {
  const channels = { image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] }
  const photo = { width: 4000, height: 3000 }
  const processor = { ...channels, min_pixels: 56 * 56, max_pixels: 12_845_056 }
  const config = { model_type: 'qwen2_5_vl', image_token_id: 5 }
  const tokensOf = (options?: { readonly maxImageTokens: number }) => {
    const { grid } = rulesOf(config, processor, options).layout(photo, 'high')
    return (grid?.rows ?? 0) * (grid?.columns ?? 0)
  }
  expect(tokensOf()).toBe(30 * 41)
  expect(tokensOf({ maxImageTokens: 100 })).toBe(8 * 11)
  expect(tokensOf({ maxImageTokens: 16_384 })).toBe(107 * 143)
  const onLlava = () => rulesOf({ model_type: 'llava' }, {}, { maxImageTokens: 100 })
  expect(onLlava).toThrow('"maxImageTokens" changes nothing for model_type "llava"')
})
