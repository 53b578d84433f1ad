import type { GraphView } from '#workers/graph/graph-view.ts'
import { type Attribute, type GraphNode, int, ints } from '#workers/graph/model.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'
import { untrainable } from '#workers/training/autodiff/gradient-context.ts'
import { type GraphWriter, intOf, type Parts } from '#workers/training/graph-writer.ts'

const FLOAT = { attributes: { to: int(1) } }

/**
 * Products of quantized weights: of the same weights in floating point. Where activations were
 * quantized too, they keep their precision.
 */
export const QUANTIZED_PRODUCT_PARTS: Readonly<Record<string, Parts>> = {
  'com.microsoft.MatMulNBits': (node, writer, view) => {
    const [input = '', , , zeros = '', groups = '', bias = ''] = node.inputs
    if (groups !== '') throw untrainable(node, 'its weights are in another order')
    const isFloat = zeros !== '' && view.constant(zeros)?.onnxType !== ELEMENT_TYPES.uint8.onnxType
    if (isFloat) throw untrainable(node, 'its zero points are not bytes')
    const product = [input, blockWeights(node, writer)]
    if (bias === '') writer.emitTo(node.outputs[0] as string, 'MatMul', product)
    else writer.emitTo(node.outputs[0] as string, 'Add', [writer.emit('MatMul', product), bias])
  },
  'com.microsoft.DynamicQuantizeMatMul': (node, writer) => {
    const [input = '', weights = '', scales = '', zeros = '', bias = ''] = node.inputs
    const product = [input, integerWeights(writer, { weights, scales, zeros })]
    if (bias === '') writer.emitTo(node.outputs[0] as string, 'MatMul', product)
    else writer.emitTo(node.outputs[0] as string, 'Add', [writer.emit('MatMul', product), bias])
  },
  // The last step of MatMulInteger: its sums times the scales of both sides.
  Mul: (node, writer, view) => {
    const found = findIntegerProduct(node, view)
    if (found === undefined) writer.nodes.push(node)
    else {
      const { input, ...side } = found
      const product = [input, integerWeights(writer, side)]
      writer.emitTo(node.outputs[0] as string, 'MatMul', product)
    }
  },
}

interface IntegerSide {
  readonly weights: string
  readonly scales: string
  readonly zeros: string
}

/** (weights − zero point) · scale, with one of either for all or for each column. */
function integerWeights(writer: GraphWriter, { weights, scales, zeros }: IntegerSide): string {
  const values = writer.emit('Cast', [weights], FLOAT)
  const shifted =
    zeros === '' ? values : writer.emit('Sub', [values, writer.emit('Cast', [zeros], FLOAT)])
  return writer.emit('Mul', [shifted, scales])
}

/** Mul(Cast(MatMulInteger(DynamicQuantizeLinear(x), W)), Mul(scale of x, scale of W)) */
function findIntegerProduct(
  node: GraphNode,
  view: GraphView,
): (IntegerSide & { readonly input: string }) | undefined {
  for (const [sums = '', factor = ''] of [node.inputs, node.inputs.toReversed()]) {
    const cast = view.producer(sums)
    const product = cast?.operator === 'Cast' ? view.producer(cast.inputs[0] ?? '') : undefined
    if (product?.operator !== 'MatMulInteger') continue
    const [left = '', weights = '', , zeros = ''] = product.inputs
    const quantized = view.producer(left)
    const scaling = view.producer(factor)
    if (quantized?.operator !== 'DynamicQuantizeLinear' || scaling?.operator !== 'Mul') continue
    const scales = scaling.inputs.find((name) => name !== quantized.outputs[1])
    if (scales === undefined) continue
    return { input: quantized.inputs[0] as string, weights, scales, zeros }
  }
  return undefined
}

/**
 * The weights of MatMulNBits as [in, out]. They are stored as [out, blocks, bytes of a block] with
 * one scale and one zero point for each block; two values of four bits share a byte, the lower
 * first.
 */
function blockWeights(node: GraphNode, writer: GraphWriter): string {
  const [, packed = '', scales = '', zeros = ''] = node.inputs
  const [inSize, outSize] = [intOf(node, 'K', 0), intOf(node, 'N', 0)]
  const [bits, blockSize] = [intOf(node, 'bits', 4), intOf(node, 'block_size', 32)]
  if (bits !== 4 && bits !== 8) throw untrainable(node, `its weights have ${bits} bits`)
  const blocks = Math.ceil(inSize / blockSize)
  const unpack = (tensor: string, perRow: number, padded: number): string => {
    const rows = writer.emit('Reshape', [tensor, writer.ints(outSize, -1)])
    const values = bits === 8 ? rows : halves(writer, rows, outSize)
    const cut =
      padded === perRow
        ? values
        : writer.emit('Slice', [values, ...[0, perRow, 1].map((value) => writer.ints(value))])
    return writer.emit('Cast', [cut], FLOAT)
  }
  const perBlock = writer.ints(outSize, blocks, 1)
  const values = writer.emit('Reshape', [
    unpack(packed, blocks * blockSize, blocks * blockSize),
    writer.ints(outSize, blocks, blockSize),
  ])
  const middle =
    zeros === ''
      ? writer.scalar(2 ** (bits - 1))
      : writer.emit('Reshape', [
          unpack(zeros, blocks, bits === 8 ? blocks : 2 * Math.ceil(blocks / 2)),
          perBlock,
        ])
  const scaled = writer.emit('Mul', [
    writer.emit('Sub', [values, middle]),
    writer.emit('Reshape', [scales, perBlock]),
  ])
  const rows = writer.emit('Reshape', [scaled, writer.ints(outSize, blocks * blockSize)])
  const whole = blocks * blockSize === inSize
  const cut = whole
    ? rows
    : writer.emit('Slice', [rows, ...[0, inSize, 1].map((value) => writer.ints(value))])
  return writer.emit('Transpose', [cut], { attributes: { perm: ints(1, 0) } })
}

/** Both halves of each byte, as one row for each row. */
function halves(writer: GraphWriter, rows: string, count: number): string {
  const shift = (tensor: string, direction: 'LEFT' | 'RIGHT'): string =>
    writer.emit('BitShift', [tensor, writer.byte(4)], {
      attributes: { direction: { kind: 'string', value: direction } satisfies Attribute },
    })
  const [low, high] = [shift(shift(rows, 'LEFT'), 'RIGHT'), shift(rows, 'RIGHT')]
  const pairs = [low, high].map((half) => writer.emit('Unsqueeze', [half, writer.ints(-1)]))
  const joined = writer.emit('Concat', pairs, { attributes: { axis: int(-1) } })
  return writer.emit('Reshape', [joined, writer.ints(count, -1)])
}
