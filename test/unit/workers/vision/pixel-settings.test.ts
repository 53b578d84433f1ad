import { expect, it } from 'vitest'

import { pixelSettings } from '#workers/vision/processor-file.ts'

const CHANNELS = { image_mean: [0.5, 0.4, 0.3], image_std: [0.2, 0.2, 0.1] }

it.each([
  [{}, { kernel: 'bicubic', scale: 1 / 255, mean: [0.5, 0.4, 0.3], std: [0.2, 0.2, 0.1] }],
  [
    { resample: 1, rescale_factor: 0.5 },
    { kernel: 'lanczos', scale: 0.5 },
  ],
  [{ do_rescale: false, rescale_factor: 0.5 }, { scale: 1 }],
  [{ do_normalize: false }, { scale: 1 / 255, mean: [0, 0, 0], std: [1, 1, 1] }],
])('%j is read from preprocessor_config.json', (processor, expected) => {
  expect(pixelSettings({ ...CHANNELS, ...processor })).toMatchObject(expected)
})

it('refuses kernels that are not known', () => {
  expect(() => pixelSettings({ ...CHANNELS, resample: 9 })).toThrow('unknown "resample"')
})
