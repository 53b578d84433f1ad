import { writeModel } from '#workers/runtime/onnx-writer.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

const INTEGERS = ['starts', 'ends', 'axes', 'pads']

/**
 * An ONNX model that slices each of its inputs and pads the slice with zeros: for each type
 * `target.i` = Pad(Slice(`source.i`, starts, ends, axes), pads), tensors of four axes.
 */
export function makeCutGraph(types: readonly ElementType[]): Uint8Array {
  return writeModel({
    name: 'cut',
    nodes: types.flatMap((_, index) => [
      {
        operator: 'Slice',
        inputs: [`source.${index}`, 'starts', 'ends', 'axes'],
        output: `piece.${index}`,
      },
      { operator: 'Pad', inputs: [`piece.${index}`, 'pads'], output: `target.${index}` },
    ]),
    inputs: [
      ...types.map((type, index) => ({ name: `source.${index}`, type, rank: 4 })),
      ...INTEGERS.map((name) => ({ name, type: 'int64' as const, rank: 1 })),
    ],
    outputs: types.map((type, index) => ({ name: `target.${index}`, type, rank: 4 })),
  })
}
