import { describe, expect, it } from 'vitest'

import {
  allocateElements,
  countElements,
  ELEMENT_TYPES,
  type ElementType,
  findElementType,
} from '#workers/tensor/element-type.ts'

describe('an element type', () => {
  it.each(Object.keys(ELEMENT_TYPES) as ElementType[])('%s has memory of its size', (type) => {
    const { bytes, onnxType } = ELEMENT_TYPES[type]
    const data = allocateElements(type, 6)
    expect([data.length, data.byteLength]).toEqual([6, 6 * bytes])
    expect(data.every((value: number | bigint) => Number(value) === 0)).toBe(true)
    expect(findElementType(onnxType)).toBe(type)
  })

  it('without a plain memory layout is unknown', () => {
    const text = 8 // strings in ONNX
    expect(findElementType(text)).toBeUndefined()
  })

  it.each([
    [[], 1],
    [[3], 3],
    [[2, 0, 4], 0],
    [[2, 3, 4], 24],
  ])('of shape %j takes %i elements', (dims, expected) => {
    expect(countElements(dims)).toBe(expected)
  })
})
