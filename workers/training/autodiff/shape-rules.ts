import { type GraphNode, int, ints } from '#workers/graph/model.ts'
import { intOf } from '#workers/training/graph-writer.ts'

import { type GradientContext, type GradientRule, untrainable } from './gradient-context.ts'

/** Beyond every axis, as ONNX writes the end of a slice that is open. */
const END = Number.MAX_SAFE_INTEGER

const reshaped: GradientRule = (node, context) => {
  const { writer } = context
  const [input = ''] = node.inputs
  context.add(input, () => writer.emit('Reshape', [context.ofOutput(node), writer.shape(input)]))
}

/** Rules of operators that move elements. */
export const SHAPE_RULES: Readonly<Record<string, GradientRule>> = {
  Reshape: reshaped,
  Flatten: reshaped,
  Squeeze: reshaped,
  Unsqueeze: reshaped,
  Expand: (node, context) => {
    context.addBroadcast(node, node.inputs[0], () => context.ofOutput(node))
  },
  Transpose: (node, context) => {
    const { perm } = node.attributes
    const order = perm?.kind === 'ints' ? perm.value.map(Number) : undefined
    context.add(node.inputs[0], () => {
      const inverse = order?.map((_, axis) => order.indexOf(axis))
      return context.writer.emit('Transpose', [context.ofOutput(node)], {
        attributes: { ...(inverse && { perm: ints(...inverse) }) },
      })
    })
  },
  Concat: (node, context) => {
    const { writer } = context
    const axis = intOf(node, 'axis', 0)
    const sizes = writer.emit(
      'Concat',
      node.inputs.map((input) => sizeAt(context, input, axis)),
      { attributes: { axis: int(0) } },
    )
    const parts = writer.emitMany('Split', [context.ofOutput(node), sizes], {
      count: node.inputs.length,
      attributes: { axis: int(axis) },
    })
    for (const [index, input] of node.inputs.entries()) {
      context.add(input, () => parts[index] as string)
    }
  },
  Split: (node, context) => {
    context.add(node.inputs[0], () => {
      const parts = node.outputs.map((name) => context.find(name) ?? context.zerosLike(name))
      return context.writer.emit('Concat', parts, {
        attributes: { axis: int(intOf(node, 'axis', 0)) },
      })
    })
  },
  Slice: sliceRule,
  Gather: gatherRule,
}

/** The size of an axis, as a list of one. */
function sizeAt({ writer }: GradientContext, tensor: string, axis: number): string {
  return writer.emit('Gather', [writer.shape(tensor), writer.ints(axis)])
}

/** Puts zeros before and behind the gradient of a slice along one axis. */
function sliceRule(node: GraphNode, context: GradientContext): void {
  const { view } = context
  const [input = '', starts = '', , axes = '', steps = ''] = node.inputs
  const [axis, ...others] = view.numbers(axes) ?? []
  const step = steps === '' ? 1 : view.scalar(steps)
  if (axis === undefined || others.length > 0 || step !== 1) {
    throw untrainable(node, 'it is not a slice along one axis in steps of one')
  }
  context.add(input, () =>
    amongZeros(context, context.ofOutput(node), { input, axis, start: starts }),
  )
}

function gatherRule(node: GraphNode, context: GradientContext): void {
  const { writer, view } = context
  const [input = '', indices = ''] = node.inputs
  const axis = intOf(node, 'axis', 0)
  if (view.constant(indices)?.dims.length === 0) {
    const start = writer.ints(view.scalar(indices) ?? 0)
    context.add(input, () => {
      const slice = writer.emit('Unsqueeze', [context.ofOutput(node), writer.ints(axis)])
      return amongZeros(context, slice, { input, axis, start })
    })
    return
  }
  if (axis !== 0) throw untrainable(node, 'its axis is not the first one')
  context.add(input, () => {
    const places = writer.emit('Unsqueeze', [indices, writer.ints(-1)])
    return writer.emit('ScatterND', [context.zerosLike(input), places, context.ofOutput(node)], {
      attributes: { reduction: { kind: 'string', value: 'add' } },
    })
  })
}

/** The gradient of a slice with zeros before and behind it, in the shape of the whole. */
function amongZeros(
  context: GradientContext,
  gradient: string,
  {
    input,
    axis,
    start: given,
  }: { readonly input: string; readonly axis: number; readonly start: string },
): string {
  const { writer } = context
  const size = sizeAt(context, input, axis)
  const isNegative = writer.emit('Less', [given, writer.ints(0)])
  const start = writer.emit('Where', [isNegative, writer.emit('Add', [given, size]), given])
  const end = writer.emit('Add', [start, sizeAt(context, gradient, axis)])
  const zeros = context.zerosLike(input)
  const slice = (from: string, to: string): string =>
    writer.emit('Slice', [zeros, from, to, writer.ints(axis)])
  const parts = [slice(writer.ints(0), start), gradient, slice(end, writer.ints(END))]
  return writer.emit('Concat', parts, { attributes: { axis: int(axis) } })
}
