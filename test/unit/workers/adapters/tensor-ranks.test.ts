import { expect, it } from 'vitest'

import { findRanks } from '#workers/adapters/tensor-ranks.ts'
import { int64Constant, makeModel, makeNode, makeValue } from '#workers/graph/model.ts'

const LEVELS = 40

it('finds the rank of a shape that is concatenated of sizes', () => {
  const { graph } = makeModel({
    name: 'sizes',
    nodes: [
      makeNode('Unsqueeze', ['size'], 'list'),
      makeNode('Concat', ['list', 'rest'], 'shape'),
      makeNode('Reshape', ['x', 'shape'], 'y'),
      makeNode('Relu', ['y'], 'z'),
    ],
    constants: [int64Constant('rest', [2, 3])],
    inputs: [makeValue('x', 'float32', ['n']), makeValue('size', 'int64', [])],
    outputs: [],
  })
  expect(findRanks(graph).get('z')).toBe(3)
})

it('reads each size once, however often a graph doubles a shape or reads its own', () => {
  const doubled = Array.from({ length: LEVELS }, (_, at) =>
    makeNode('Concat', [`s${at}`, `s${at}`], `s${at + 1}`),
  )
  const { graph } = makeModel({
    name: 'doubled',
    nodes: [
      ...doubled,
      makeNode('Reshape', ['x', `s${LEVELS}`], 'y'),
      makeNode('Concat', ['own', 'own'], 'own'),
      makeNode('Reshape', ['x', 'own'], 'z'),
    ],
    constants: [int64Constant('s0', [1])],
    inputs: [makeValue('x', 'float32', ['n'])],
    outputs: [],
  })
  const ranks = findRanks(graph)
  expect(ranks.get('y')).toBe(2 ** LEVELS)
  expect(ranks.has('z')).toBe(false)
})
