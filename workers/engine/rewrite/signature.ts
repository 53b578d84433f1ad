import { createHash } from 'node:crypto'

import { ancestryOf } from '#workers/graph/extract.ts'
import type { GraphView } from '#workers/graph/graph-view.ts'
import type { Attribute, Constant } from '#workers/graph/model.ts'

import type { AttentionLayer } from './attention-layers.ts'

/**
 * A text that is equal for layers that compute the same function of query, key, value and cache.
 */
export function signatureOf(view: GraphView, layer: AttentionLayer): string {
  const { rotary, query, key, value, pastKey, pastValue, output } = layer
  const ends = [rotary?.query ?? query, rotary?.key ?? key, value, pastKey, pastValue]
  const { nodes } = ancestryOf(view, [output], new Set(ends))
  const numbers = new Map(ends.map((name, index) => [name, `end ${index}`]))
  const hash = createHash('sha256')
  const nameOf = (name: string): string => {
    const known = numbers.get(name)
    if (known !== undefined) return known
    const constant = view.constant(name)
    return constant ? describeConstant(constant) : `input ${name}`
  }
  for (const [index, { operator, domain, inputs, outputs, attributes }] of nodes.entries()) {
    const settings = Object.entries(attributes).map(([name, setting]) => [name, describe(setting)])
    // Constants are described where they are read.
    if (operator !== 'Constant') {
      hash.update(JSON.stringify([operator, domain, inputs.map(nameOf), settings.toSorted()]))
      for (const [at, name] of outputs.entries()) numbers.set(name, `node ${index}.${at}`)
    }
  }
  return hash.digest('hex')
}

function describe(attribute: Attribute): string {
  switch (attribute.kind) {
    case 'tensor':
      return describeConstant(attribute.value)
    case 'graph':
      return `graph ${attribute.value.name}`
    case 'other':
      return Buffer.from(attribute.bytes).toString('hex')
    default:
      return `${attribute.kind} ${String(attribute.value)}`
  }
}

function describeConstant({ onnxType, dims, data }: Constant): string {
  const content =
    data.kind === 'bytes'
      ? Buffer.from(data.bytes).toString('base64')
      : data.kind === 'file'
        ? `${data.location} ${data.offset}`
        : Buffer.from(data.fields).toString('hex')
  return `${onnxType} [${dims.join()}] ${content}`
}
