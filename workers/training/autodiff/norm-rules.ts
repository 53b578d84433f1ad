import type { GraphNode } from '#workers/graph/model.ts'
import { floatOf, intOf } from '#workers/training/graph-writer.ts'

import { type GradientContext, type GradientRule, untrainable } from './gradient-context.ts'

/** Rules of normalizations over the last axis. */
export const NORM_RULES: Readonly<Record<string, GradientRule>> = {
  SimplifiedLayerNormalization: rootMeanSquareRule,
  RMSNormalization: rootMeanSquareRule,
  LayerNormalization: layerNormRule,
}

const EPSILON = 1e-5 // of the operators' definition

/**
 * y = w · x̂ with x̂ = r · x and r = 1 / √(mean(x²) + ε).
 * With h = w · dy: dx = r · (h − x̂ · mean(h · x̂)); dw = Σ dy · x̂.
 */
function rootMeanSquareRule(node: GraphNode, context: GradientContext): void {
  requireLastAxis(node)
  const { writer } = context
  const [input = '', gain = ''] = node.inputs
  const gradient = context.ofOutput(node)
  const inverse = inverseRoot(node, context, input)
  const normal = writer.emit('Mul', [input, inverse])
  context.add(input, () => {
    const weighted = writer.emit('Mul', [gradient, gain])
    const mean = writer.meanOfLast(writer.emit('Mul', [weighted, normal]))
    const along = writer.emit('Mul', [normal, mean])
    return writer.emit('Mul', [writer.emit('Sub', [weighted, along]), inverse])
  })
  context.addBroadcast(node, gain, () => writer.emit('Mul', [gradient, normal]))
}

/**
 * y = w · x̂ + b with x̂ = r · (x − mean(x)) and r = 1 / √(var(x) + ε).
 * With h = w · dy: dx = r · (h − mean(h) − x̂ · mean(h · x̂)); dw = Σ dy · x̂; db = Σ dy.
 */
function layerNormRule(node: GraphNode, context: GradientContext): void {
  requireLastAxis(node)
  const { writer } = context
  const [input = '', gain = '', bias] = node.inputs
  const gradient = context.ofOutput(node)
  const centered = writer.emit('Sub', [input, writer.meanOfLast(input)])
  const inverse = inverseRoot(node, context, centered)
  const normal = writer.emit('Mul', [centered, inverse])
  context.add(input, () => {
    const weighted = writer.emit('Mul', [gradient, gain])
    const mean = writer.meanOfLast(writer.emit('Mul', [weighted, normal]))
    const along = writer.emit('Mul', [normal, mean])
    const rest = writer.emit('Sub', [weighted, writer.meanOfLast(weighted)])
    return writer.emit('Mul', [writer.emit('Sub', [rest, along]), inverse])
  })
  context.addBroadcast(node, gain, () => writer.emit('Mul', [gradient, normal]))
  context.addBroadcast(node, bias, () => gradient)
}

/** 1 / √(mean(x²) + ε) */
function inverseRoot(node: GraphNode, { writer }: GradientContext, tensor: string): string {
  const mean = writer.meanOfLast(writer.emit('Mul', [tensor, tensor]))
  const shifted = writer.emit('Add', [mean, writer.scalar(floatOf(node, 'epsilon', EPSILON))])
  return writer.emit('Reciprocal', [writer.emit('Sqrt', [shifted])])
}

function requireLastAxis(node: GraphNode): void {
  if (intOf(node, 'axis', -1) !== -1) throw untrainable(node, 'its axis is not the last one')
}
