import { makeModel, makeNode, makeValue } from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

const INTEGERS = ['starts', 'ends', 'axes', 'pads']
const ANY_SIZES = ['', '', '', '']

/**
 * An ONNX model that slices each of its inputs and pads the slice with zeros: for each type
 * `target.i` = Pad(Slice(`source.i`, starts, ends, axes), pads), tensors of four axes.
 */
export function makeCutGraph(types: readonly ElementType[]): Uint8Array {
  const model = makeModel({
    name: 'cut',
    nodes: types.flatMap((_, index) => [
      makeNode('Slice', [`source.${index}`, 'starts', 'ends', 'axes'], `piece.${index}`),
      makeNode('Pad', [`piece.${index}`, 'pads'], `target.${index}`),
    ]),
    inputs: [
      ...types.map((type, index) => makeValue(`source.${index}`, type, ANY_SIZES)),
      ...INTEGERS.map((name) => makeValue(name, 'int64', [''])),
    ],
    outputs: types.map((type, index) => makeValue(`target.${index}`, type, ANY_SIZES)),
  })
  return writeModel(model)
}
