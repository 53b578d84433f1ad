import sharp from 'sharp'
import { expect, it } from 'vitest'

import { encodeImage, openImage, prepareImageLibrary } from '#workers/image/image-file.ts'

it('nothing of an image is kept once it is done', async () => {
  prepareImageLibrary()
  const pixels = { data: new Uint8Array(512 * 512 * 3).fill(90), width: 512, height: 512 }
  const image = await openImage(await encodeImage(pixels), 'image')
  await image.coloursAt({ width: 256, height: 256 })
  const { memory, items } = sharp.cache()
  expect(memory).toMatchObject({ current: 0, max: 0 })
  expect(items.current).toBe(0)
})
