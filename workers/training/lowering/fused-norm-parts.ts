import { float, type GraphNode } from '#workers/graph/model.ts'
import { floatOf, type GraphWriter, type Parts } from '#workers/training/graph-writer.ts'

/** Where the operators give the sum of their two inputs. */
const SUM_OUTPUT = 3
const EPSILON = 1e-12 // of the operators' definition

/** Normalizations of a sum: a sum and a normalization. */
export const FUSED_NORM_PARTS: Readonly<Record<string, Parts>> = {
  'com.microsoft.SkipSimplifiedLayerNormalization': (node, writer) => {
    const [input = '', skip = '', gain = '', bias = ''] = node.inputs
    const sum = writeSum(node, writer, [input, skip, bias])
    writeNorm(node, writer, { operator: 'SimplifiedLayerNormalization', inputs: [sum, gain] })
  },
  'com.microsoft.SkipLayerNormalization': (node, writer) => {
    const [input = '', skip = '', gain = '', shift = '', bias = ''] = node.inputs
    const sum = writeSum(node, writer, [input, skip, bias])
    const inputs = shift === '' ? [sum, gain] : [sum, gain, shift]
    writeNorm(node, writer, { operator: 'LayerNormalization', inputs })
  },
}

function writeSum(
  { outputs }: GraphNode,
  writer: GraphWriter,
  [input, skip, bias]: readonly [string, string, string],
): string {
  const summands = [bias === '' ? input : writer.emit('Add', [input, bias]), skip]
  const output = outputs[SUM_OUTPUT] ?? ''
  return output === '' ? writer.emit('Add', summands) : writer.emitTo(output, 'Add', summands)
}

function writeNorm(
  node: GraphNode,
  writer: GraphWriter,
  { operator, inputs }: { readonly operator: string; readonly inputs: readonly string[] },
): void {
  const epsilon = float(floatOf(node, 'epsilon', EPSILON))
  writer.emitTo(node.outputs[0] as string, operator, inputs, { attributes: { epsilon } })
}
