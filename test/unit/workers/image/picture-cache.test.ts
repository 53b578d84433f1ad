import sharp from 'sharp'
import { expect, it } from 'vitest'

import { encodePng, forgetPictures, openPicture } from '#workers/image/picture-file.ts'

it('nothing of a picture is kept once it is done', async () => {
  forgetPictures()
  const pixels = { data: new Uint8Array(512 * 512 * 3).fill(90), width: 512, height: 512 }
  const picture = await openPicture(await encodePng(pixels), 'image')
  await picture.coloursAt({ width: 256, height: 256 })
  const { memory, items } = sharp.cache()
  expect(memory).toMatchObject({ current: 0, max: 0 })
  expect(items.current).toBe(0)
})
