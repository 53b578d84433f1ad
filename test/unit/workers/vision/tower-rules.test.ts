import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, it } from 'vitest'

import { readTowerRules } from '#workers/vision/tower-rules.ts'

const NUMBERS = { image_mean: [0.5, 0.4, 0.3], image_std: [0.2, 0.2, 0.2] }
const JINA = {
  image_processor_type: 'JinaCLIPImageProcessor',
  size: 224,
  resize_mode: 'shortest',
  interpolation: 'bicubic',
  mean: NUMBERS.image_mean,
  std: NUMBERS.image_std,
  fill_color: 0,
}

async function rulesOf(processor: object, config: object = { model_type: 'clip' }) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-tower-'))
  try {
    await writeFile(join(folder, 'preprocessor_config.json'), JSON.stringify(processor))
    await writeFile(join(folder, 'config.json'), JSON.stringify(config))
    return await readTowerRules(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

it.each([
  ['numbers for both sides', { size: 224, crop_size: 224, do_center_crop: true, ...NUMBERS }],
  [
    'sizes by their names',
    { size: { shortest_edge: 224 }, crop_size: { width: 224, height: 224 }, ...NUMBERS },
  ],
  ["Jina's names", JINA],
])('reads the centre of an image by a file with %s', async (_, processor) => {
  const { pixels, tokensPerImage, layout } = await rulesOf(processor)
  expect(pixels).toMatchObject({ kernel: 'bicubic', mean: NUMBERS.image_mean })
  expect(tokensPerImage).toBe(49)
  expect(layout({ width: 640, height: 320 })).toMatchObject({
    sizes: [{ width: 448, height: 224 }],
    tiles: [{ x: 112, y: 0 }],
    tile: { width: 224, height: 224 },
  })
})

it.each([
  [224, 0.875, { sizes: [{ width: 512, height: 256 }], tiles: [{ x: 144, y: 16 }] }],
  [224, undefined, { sizes: [{ width: 512, height: 256 }], tiles: [{ x: 144, y: 16 }] }],
  [384, 1, { sizes: [{ width: 384, height: 384 }], tiles: [{ x: 0, y: 0 }] }],
])(
  'reads an image of side %i and a cropped share of %s as ConvNeXt',
  async (side, share, expected) => {
    const type = { image_processor_type: 'ConvNextImageProcessor' }
    const processor = { ...type, size: { shortest_edge: side }, crop_pct: share, ...NUMBERS }
    const { tokensPerImage, layout } = await rulesOf(processor, { model_type: 'convnext' })
    const tile = { width: side, height: side }
    expect(layout({ width: 640, height: 320 })).toMatchObject({ ...expected, tile })
    expect(tokensPerImage).toBe((side / 32) ** 2)
  },
)

it.each([
  ['older files', 224],
  ['newer files', { width: 224, height: 224 }],
])('reads the whole of an image as ViT by the size of %s', async (_, size) => {
  const { tokensPerImage, layout } = await rulesOf({ size, ...NUMBERS }, { patch_size: 16 })
  expect(layout({ width: 640, height: 320 })).toMatchObject({ tile: { width: 224, height: 224 } })
  expect(tokensPerImage).toBe(196)
})

it('reads the whole image if nothing is cropped', async () => {
  const size = { width: 256, height: 256 }
  const { tokensPerImage, layout } = await rulesOf({ size, ...NUMBERS }, { model_type: 'siglip' })
  expect(tokensPerImage).toBe(256)
  expect(layout({ width: 640, height: 320 })).toMatchObject({ sizes: [size], tile: size })
})

it.each([
  [{ size: 224, do_resize: false, ...NUMBERS }, '"do_resize": false is not supported'],
  [{ patch_size: 16, max_num_patches: 256, ...NUMBERS }, 'has no "size"'],
  [{ size: 224, crop_size: 256, ...NUMBERS }, '"crop_size" is larger than "size"'],
  [{ size: 224, crop_size: 224 }, '"image_mean" must be three numbers'],
  [{ ...JINA, resize_mode: 'squash' }, 'only "resize_mode": "shortest"'],
])('refuses %o by the name of its setting', async (processor, message) => {
  await expect(rulesOf(processor)).rejects.toThrow(message)
})
