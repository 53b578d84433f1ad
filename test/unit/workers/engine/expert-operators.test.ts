import { expect, it } from 'vitest'

import { refuseExperts } from '#workers/engine/expert-operators.ts'
import { type Attribute, makeNode } from '#workers/graph/model.ts'

const MATRICES = ['x', 'router', 'up', '', 'down']
const PACKED = ['x', 'router', 'up', 'up.scales', '', 'down', 'down.scales']
const NORMALIZED = { normalize_routing_weights: 1 }

const load = (
  operator: string,
  inputs: readonly string[],
  settings: Readonly<Record<string, number | string>>,
) => {
  const attributes = Object.entries(settings).map(([name, value]): [string, Attribute] => {
    if (typeof value === 'string') return [name, { kind: 'string', value }]
    return [name, { kind: 'int', value: BigInt(value) }]
  })
  const parts = { domain: 'com.microsoft', attributes: Object.fromEntries(attributes) }
  const nodes = [makeNode(operator, inputs, 'y', parts)]
  const graph = { name: 'g', nodes, rest: [], constants: [], inputs: [], outputs: [] }
  const model = { irVersion: 9, opsets: [], functions: [], rest: [], graph }
  return () => refuseExperts(model, 'model.onnx')
}

it.each([
  ['MoE', MATRICES, {}],
  ['MoE', [...MATRICES, '', ''], NORMALIZED],
  ['QMoE', PACKED, NORMALIZED],
  ['QMoE', PACKED, { ...NORMALIZED, quant_type: 'int', weights_prepacked: 0 }],
])('accepts %s that a processor computes', (operator, inputs, settings) => {
  expect(load(operator, inputs, settings)).not.toThrow()
})

it.each([
  ['MoE', [...MATRICES, '', 'gate'], NORMALIZED, 'three matrices'],
  ['QMoE', [...PACKED, '', 'gate', 'gate.scales'], NORMALIZED, 'three matrices'],
  ['MoE', MATRICES, { use_sparse_mixer: 1 }, 'use_sparse_mixer'],
  ['QMoE', PACKED, { ...NORMALIZED, quant_type: 'fp4' }, 'the quant_type fp4'],
  ['QMoE', PACKED, { ...NORMALIZED, weights_prepacked: 1 }, 'weights_prepacked'],
  ['QMoE', PACKED, {}, 'no normalize_routing_weights'],
])('refuses %s that a processor does not compute, by its setting', (...row) => {
  const [operator, inputs, settings, reason] = row
  const message = `model.onnx: its operator ${operator} has ${reason}`
  expect(load(operator, inputs, settings)).toThrow(message)
})
