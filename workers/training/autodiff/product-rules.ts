import { float, type GraphNode, int } from '#workers/graph/model.ts'
import { floatOf, intOf } from '#workers/training/graph-writer.ts'

import type { GradientContext, GradientRule } from './gradient-context.ts'

/** Rules of products of matrices. */
export const PRODUCT_RULES: Readonly<Record<string, GradientRule>> = {
  MatMul: (node, context) => {
    const [a = '', b = ''] = node.inputs
    context.addMatrices(node, a, () =>
      transposedProduct(context, [context.ofOutput(node), b], 'transB'),
    )
    context.addMatrices(node, b, () =>
      transposedProduct(context, [a, context.ofOutput(node)], 'transA'),
    )
  },
  Gemm: gemmRule,
}

/** A product with one transposed side, of matrices of any rank. */
function transposedProduct(
  { writer }: GradientContext,
  sides: readonly [string, string],
  transposed: 'transA' | 'transB',
): string {
  return writer.emit('FusedMatMul', sides, {
    domain: 'com.microsoft',
    attributes: { [transposed]: int(1) },
  })
}

function gemmRule(node: GraphNode, context: GradientContext): void {
  const [a = '', b = '', c] = node.inputs
  const { writer } = context
  const [transA, transB] = [intOf(node, 'transA', 0), intOf(node, 'transB', 0)]
  const alpha = floatOf(node, 'alpha', 1)
  const beta = floatOf(node, 'beta', 1)
  const product = (sides: readonly [string, string], ofA: number, ofB: number): string =>
    writer.emit('Gemm', sides, {
      attributes: { transA: int(ofA), transB: int(ofB), alpha: float(alpha) },
    })
  context.add(a, () => {
    const gradient = context.ofOutput(node)
    return transA === 0 ? product([gradient, b], 0, 1 - transB) : product([b, gradient], transB, 1)
  })
  context.add(b, () => {
    const gradient = context.ofOutput(node)
    return transB === 0 ? product([a, gradient], 1 - transA, 0) : product([gradient, a], 1, transA)
  })
  context.addBroadcast(node, c, () => {
    const gradient = context.ofOutput(node)
    return beta === 1 ? gradient : writer.emit('Mul', [gradient, writer.scalar(beta)])
  })
}
