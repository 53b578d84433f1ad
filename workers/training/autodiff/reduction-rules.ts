import { type GraphNode, int } from '#workers/graph/model.ts'
import { intOf } from '#workers/training/graph-writer.ts'

import { type GradientContext, type GradientRule, untrainable } from './gradient-context.ts'

/** Rules of operators over an axis. */
export const REDUCTION_RULES: Readonly<Record<string, GradientRule>> = {
  ReduceSum: (node, context) => {
    context.add(node.inputs[0], () => spread(node, context))
  },
  ReduceMean: (node, context) => {
    const { writer } = context
    const [input = ''] = node.inputs
    context.add(input, () => {
      const size = (tensor: string): string => {
        return writer.emit('Cast', [writer.emit('Size', [tensor])], { attributes: { to: int(1) } })
      }
      const count = writer.emit('Div', [size(input), size(node.outputs[0] as string)])
      return writer.emit('Div', [spread(node, context), count])
    })
  },
  Softmax: (node, context) => {
    const { writer } = context
    const output = node.outputs[0] as string
    context.add(node.inputs[0], () => {
      requireLastAxis(node)
      const gradient = context.ofOutput(node)
      const sum = writer.sumOfLast(writer.emit('Mul', [gradient, output]))
      return writer.emit('Mul', [output, writer.emit('Sub', [gradient, sum])])
    })
  },
  LogSoftmax: (node, context) => {
    const { writer } = context
    context.add(node.inputs[0], () => {
      requireLastAxis(node)
      const gradient = context.ofOutput(node)
      const shares = writer.emit('Exp', [node.outputs[0] as string])
      const sum = writer.emit('Mul', [shares, writer.sumOfLast(gradient)])
      return writer.emit('Sub', [gradient, sum])
    })
  },
}

function requireLastAxis(node: GraphNode): void {
  if (intOf(node, 'axis', -1) !== -1) throw untrainable(node, 'its axis is not the last one')
}

/** The gradient of a sum for each of its summands. */
function spread(node: GraphNode, context: GradientContext): string {
  const { writer, view } = context
  const [input = '', axesInput] = node.inputs
  const { axes } = node.attributes
  const given = axes?.kind === 'ints' ? axes.value.map(Number) : view.numbers(axesInput ?? '')
  const gradient = context.ofOutput(node)
  const isKept = intOf(node, 'keepdims', 1) === 1
  if (!isKept && given === undefined && axesInput) throw untrainable(node, 'its axes vary')
  const aligned =
    isKept || given === undefined
      ? gradient
      : writer.emit('Unsqueeze', [gradient, writer.ints(...given)])
  return writer.emit('Expand', [aligned, writer.shape(input)])
}
