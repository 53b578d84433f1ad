import { expect, it } from 'vitest'

import { FeatureCache } from '#workers/vision/feature-cache.ts'

const FOUR_BYTES = new Float32Array(1)

/** A cache, and the keys whose embeddings it had to compute. */
function open(bytesMax: number) {
  const cache = new FeatureCache(bytesMax)
  const computed: string[] = []
  const get = (key: string) =>
    cache.get(key, async () => {
      computed.push(key)
      return FOUR_BYTES
    })
  return { cache, computed, get }
}

it('computes an image once for requests that ask at the same time', async () => {
  const { computed, get } = open(8)
  await Promise.all([get('a'), get('a'), get('b')])
  expect(computed).toEqual(['a', 'b'])
})

it('drops the least recently used embeddings beyond its bytes', async () => {
  const { computed, get } = open(8)
  for (const key of ['a', 'b', 'a', 'c', 'a', 'b']) await get(key)
  expect(computed).toEqual(['a', 'b', 'c', 'b'])
})

it('keeps no failure', async () => {
  const { cache, computed, get } = open(8)
  await expect(cache.get('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no')
  await get('a')
  expect(computed).toEqual(['a'])
})
