import { expect, it } from 'vitest'

import { findAlignmentHeads } from '#workers/audio/alignment-heads.ts'

const ALIGNMENT = { listed: undefined, layers: 4, headsPerLayer: 2, medianWidth: 7 }
const ALL = [0, 1, 2, 3]
const find = (change: object, layers: readonly number[] = ALL, contextLength = 448) =>
  findAlignmentHeads({ alignment: { ...ALIGNMENT, ...change }, contextLength }, new Set(layers))

it('uses the heads that the file lists', () => {
  expect(
    find({
      listed: [
        [3, 1],
        [0, 0],
      ],
    }),
  ).toEqual({
    heads: [
      { layer: 3, head: 1 },
      { layer: 0, head: 0 },
    ],
  })
})

it('uses all heads of the upper half of the layers without a list', () => {
  expect(find({})).toEqual({
    heads: [
      { layer: 2, head: 0 },
      { layer: 2, head: 1 },
      { layer: 3, head: 0 },
      { layer: 3, head: 1 },
    ],
  })
})

const NO_LIST = 'alignment_heads is not a list of pairs of layer and head'
it.each<[string, object, (readonly number[])?, number?]>([
  ['alignment_heads names head 0 of layer 4, which do not exist', { listed: [[4, 0]] }],
  ['alignment_heads names head 2 of layer 0, which do not exist', { listed: [[0, 2]] }],
  ['the decoder does not return cross_attentions.3', { listed: [[3, 0]] }, [0, 1, 2]],
  ['the decoder does not return cross_attentions.2', {}, [3]],
  ['the decoder returns no cross-attentions', {}, []],
  ['the context of the decoder is too short', {}, ALL, 8],
  ['median_filter_width is even', { medianWidth: 6 }],
  [NO_LIST, { listed: [] }],
  [NO_LIST, { listed: {} }],
  [NO_LIST, { listed: 'all' }],
  [NO_LIST, { listed: [[0]] }],
  [NO_LIST, { listed: [[0, 1, 1]] }],
  [NO_LIST, { listed: [[-1, 0]] }],
  [NO_LIST, { listed: [[0.5, 0]] }],
  [NO_LIST, { listed: [['0', 0]] }],
  [NO_LIST, { listed: Array(9).fill([0, 0]) }],
])('says that %s', (reason, change, layers, contextLength) => {
  expect(find(change, layers, contextLength)).toEqual({ reason })
})
