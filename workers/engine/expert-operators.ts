import type { GraphNode, Model } from '#workers/graph/model.ts'
import { nodesOf } from '#workers/graph/operators.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/**
 * The index of each expert's third matrix among the inputs of the operators of mixtures of experts.
 */
const THIRD_MATRIX: Readonly<Record<string, number>> = { MoE: 6, QMoE: 8 }

/**
 * Throws `ModelLoadError` for mixtures of experts that ONNX Runtime cannot compute on a processor,
 * or would compute wrongly because its operators ignore a setting there.
 */
export function refuseExperts(model: Model, file: string): void {
  for (const node of nodesOf(model)) {
    const reason = node.domain === 'com.microsoft' ? findReason(node) : undefined
    if (reason === undefined) continue
    throw new ModelLoadError(
      file,
      `its operator ${node.operator} ${reason}, which processors do not compute`,
    )
  }
}

function findReason({ operator, inputs, attributes }: GraphNode): string | undefined {
  const third = Object.hasOwn(THIRD_MATRIX, operator) ? THIRD_MATRIX[operator] : undefined
  if (third === undefined) return undefined
  const settingOf = (name: string, usual: number | string): number | string => {
    const attribute = attributes[name]
    if (attribute?.kind === 'int') return Number(attribute.value)
    return attribute?.kind === 'string' ? attribute.value : usual
  }
  if ((inputs[third] ?? '') !== '') return 'has three matrices for each expert'
  if (settingOf('use_sparse_mixer', 0) === 1) return 'has use_sparse_mixer'
  if (operator === 'MoE') return undefined
  const quantType = settingOf('quant_type', 'int')
  if (quantType !== 'int') return `has the quant_type ${quantType}`
  if (settingOf('weights_prepacked', 0) === 1) return 'has weights_prepacked'
  const isNormalized = settingOf('normalize_routing_weights', 0) === 1
  return isNormalized ? undefined : 'has no normalize_routing_weights'
}
