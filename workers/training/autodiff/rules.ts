import type { GraphNode } from '#workers/graph/model.ts'
import { operatorKey } from '#workers/training/graph-writer.ts'

import { ELEMENTWISE_RULES } from './elementwise-rules.ts'
import type { GradientRule } from './gradient-context.ts'
import { NORM_RULES } from './norm-rules.ts'
import { PRODUCT_RULES } from './product-rules.ts'
import { REDUCTION_RULES } from './reduction-rules.ts'
import { SHAPE_RULES } from './shape-rules.ts'

/** Every operator that can be differentiated, by name; one of another domain with its domain. */
const GRADIENT_RULES: Readonly<Record<string, GradientRule>> = {
  ...ELEMENTWISE_RULES,
  ...PRODUCT_RULES,
  ...REDUCTION_RULES,
  ...NORM_RULES,
  ...SHAPE_RULES,
  // The inverse of a rotation is the rotation by the negative angle.
  'com.microsoft.RotaryEmbedding': (node, context) => {
    const [input, positions = '', cos = '', sin = ''] = node.inputs
    const { writer } = context
    context.add(input, () =>
      writer.emit(
        node.operator,
        [context.ofOutput(node), positions, cos, writer.emit('Neg', [sin])],
        { domain: node.domain, attributes: node.attributes },
      ),
    )
  },
}

/** The rule of a node; undefined when its operator has none. */
export function findRule(node: GraphNode): GradientRule | undefined {
  const key = operatorKey(node)
  return Object.hasOwn(GRADIENT_RULES, key) ? GRADIENT_RULES[key] : undefined
}
