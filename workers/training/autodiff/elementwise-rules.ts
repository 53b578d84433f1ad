import type { GraphNode } from '#workers/graph/model.ts'

import { type GradientContext, type GradientRule, untrainable } from './gradient-context.ts'

/** Operators of one input whose derivative is a function of it or of the output. */
type Derivative = (
  gradient: string,
  context: GradientContext,
  tensors: { readonly input: string; readonly output: string },
) => string

function unary(derivative: Derivative): GradientRule {
  return (node, context) => {
    const [input = ''] = node.inputs
    const output = node.outputs[0] as string
    context.add(input, () => derivative(context.ofOutput(node), context, { input, output }))
  }
}

/** Rules of operators that work on every element alone. */
export const ELEMENTWISE_RULES: Readonly<Record<string, GradientRule>> = {
  Add: (node, context) => {
    for (const input of node.inputs) context.addBroadcast(node, input, () => context.ofOutput(node))
  },
  Sum: (node, context) => {
    for (const input of node.inputs) context.addBroadcast(node, input, () => context.ofOutput(node))
  },
  Sub: (node, context) => {
    const [a, b] = node.inputs
    context.addBroadcast(node, a, () => context.ofOutput(node))
    context.addBroadcast(node, b, () => context.writer.emit('Neg', [context.ofOutput(node)]))
  },
  Mul: (node, context) => {
    const [a = '', b = ''] = node.inputs
    context.addBroadcast(node, a, () => context.writer.emit('Mul', [context.ofOutput(node), b]))
    context.addBroadcast(node, b, () => context.writer.emit('Mul', [context.ofOutput(node), a]))
  },
  Div: (node, context) => {
    const [a = '', b = ''] = node.inputs
    const { writer } = context
    context.addBroadcast(node, a, () => writer.emit('Div', [context.ofOutput(node), b]))
    context.addBroadcast(node, b, () => {
      const ratio = writer.emit('Div', [node.outputs[0] as string, b])
      return writer.emit('Neg', [writer.emit('Mul', [context.ofOutput(node), ratio])])
    })
  },
  Pow: powerRule,
  Where: (node, context) => {
    const [condition = '', a, b] = node.inputs
    const { writer } = context
    const zero = writer.scalar(0)
    context.addBroadcast(node, a, () =>
      writer.emit('Where', [condition, context.ofOutput(node), zero]),
    )
    context.addBroadcast(node, b, () =>
      writer.emit('Where', [condition, zero, context.ofOutput(node)]),
    )
  },
  Identity: unary((gradient) => gradient),
  // All floating-point tensors have single precision; others carry no gradient.
  Cast: unary((gradient) => gradient),
  Neg: unary((gradient, { writer }) => writer.emit('Neg', [gradient])),
  Sqrt: unary((gradient, { writer }, { output }) =>
    writer.emit('Div', [gradient, writer.emit('Add', [output, output])]),
  ),
  Reciprocal: unary((gradient, { writer }, { output }) => {
    const square = writer.emit('Mul', [output, output])
    return writer.emit('Neg', [writer.emit('Mul', [gradient, square])])
  }),
  Exp: unary((gradient, { writer }, { output }) => writer.emit('Mul', [gradient, output])),
  Log: unary((gradient, { writer }, { input }) => writer.emit('Div', [gradient, input])),
  Abs: unary((gradient, { writer }, { input }) =>
    writer.emit('Mul', [gradient, writer.emit('Sign', [input])]),
  ),
  Sigmoid: unary((gradient, { writer }, { output }) => {
    const rest = writer.emit('Sub', [writer.scalar(1), output])
    return writer.emit('Mul', [gradient, writer.emit('Mul', [output, rest])])
  }),
  Tanh: unary((gradient, { writer }, { output }) => {
    const square = writer.emit('Mul', [output, output])
    return writer.emit('Mul', [gradient, writer.emit('Sub', [writer.scalar(1), square])])
  }),
  Softplus: unary((gradient, { writer }, { input }) =>
    writer.emit('Mul', [gradient, writer.emit('Sigmoid', [input])]),
  ),
  Relu: unary((gradient, { writer }, { input }) => {
    const isPositive = writer.emit('Greater', [input, writer.scalar(0)])
    return writer.emit('Where', [isPositive, gradient, writer.scalar(0)])
  }),
  // erf'(x) = 2 / √π · exp(-x²)
  Erf: unary((gradient, { writer }, { input }) => {
    const square = writer.emit('Mul', [input, input])
    const bell = writer.emit('Exp', [writer.emit('Neg', [square])])
    const slope = writer.emit('Mul', [bell, writer.scalar(2 / Math.sqrt(Math.PI))])
    return writer.emit('Mul', [gradient, slope])
  }),
}

function powerRule(node: GraphNode, context: GradientContext): void {
  const [base = '', power = ''] = node.inputs
  const { writer, view } = context
  const exponent = view.scalar(power)
  if (exponent === undefined) throw untrainable(node, 'its exponent is not constant')
  context.add(base, () => {
    const lower = exponent === 2 ? base : writer.emit('Pow', [base, writer.scalar(exponent - 1)])
    const slope = writer.emit('Mul', [lower, writer.scalar(exponent)])
    return writer.emit('Mul', [context.ofOutput(node), slope])
  })
}
