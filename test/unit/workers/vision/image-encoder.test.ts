import { expect, it } from 'vitest'

import { ImageEncoder } from '#workers/vision/image-encoder.ts'

const pixels = { name: 'pixel_values', type: 'float32', dims: ['n', 1536] } as const
const grid = { name: 'image_grid_thw', type: 'int64', dims: ['images', 3] } as const
const features = { name: 'image_features', type: 'float32', dims: ['positions', 32] } as const

it.each([
  ['an input that it does not know', [pixels, { ...grid, name: 'window_index' }], [features]],
  ['no pixels', [grid], [features]],
  [
    'features for layers',
    [pixels, grid],
    [features, { ...features, name: 'deepstack_features_0' }],
  ],
])('refuses a graph with %s by the name of its file', (_, inputs, outputs) => {
  const session = { file: 'vision_encoder.onnx', inputs, outputs }
  const open = () => new ImageEncoder({} as never, session as never, { size: 32 })
  expect(open).toThrow(/vision_encoder\.onnx: (not an image encoder|.*deepstack_features_0)/)
})
