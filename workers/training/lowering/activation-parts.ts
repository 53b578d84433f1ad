import type { GraphNode } from '#workers/graph/model.ts'
import { floatOf, type GraphWriter, type Parts } from '#workers/training/graph-writer.ts'

/** Activations as functions that every operator set has. */
export const ACTIVATION_PARTS: Readonly<Record<string, Parts>> = {
  Gelu: (node, writer) => {
    const { approximate } = node.attributes
    const isTanh = approximate?.kind === 'string' && approximate.value === 'tanh'
    writeGelu(node, writer, node.inputs[0] as string, isTanh ? 'tanh' : 'exact')
  },
  'com.microsoft.Gelu': (node, writer) => {
    writeGelu(node, writer, node.inputs[0] as string, 'exact')
  },
  'com.microsoft.BiasGelu': (node, writer) => {
    writeGelu(node, writer, writer.emit('Add', node.inputs), 'exact')
  },
  'com.microsoft.FastGelu': (node, writer) => {
    const [input = '', bias = ''] = node.inputs
    writeGelu(node, writer, bias === '' ? input : writer.emit('Add', [input, bias]), 'tanh')
  },
  // x · σ(α · x)
  'com.microsoft.QuickGelu': (node, writer) => {
    const [input = ''] = node.inputs
    const scaled = writer.emit('Mul', [input, writer.scalar(floatOf(node, 'alpha', 1.702))])
    const gate = writer.emit('Sigmoid', [scaled])
    writer.emitTo(node.outputs[0] as string, 'Mul', [input, gate])
  },
}

/** x / 2 · (1 + erf(x / √2)), or with tanh(√(2/π) · (x + 0.044715 · x³)) in its place. */
function writeGelu(
  { outputs }: GraphNode,
  writer: GraphWriter,
  input: string,
  form: 'exact' | 'tanh',
): void {
  const share = form === 'exact' ? exactShare(writer, input) : tanhShare(writer, input)
  const half = writer.emit('Mul', [input, writer.scalar(0.5)])
  const gate = writer.emit('Add', [share, writer.scalar(1)])
  writer.emitTo(outputs[0] as string, 'Mul', [half, gate])
}

function exactShare(writer: GraphWriter, input: string): string {
  return writer.emit('Erf', [writer.emit('Mul', [input, writer.scalar(Math.SQRT1_2)])])
}

function tanhShare(writer: GraphWriter, input: string): string {
  const square = writer.emit('Mul', [input, input])
  const slope = writer.emit('Mul', [square, writer.scalar(0.044715)])
  const stretched = writer.emit('Mul', [input, writer.emit('Add', [slope, writer.scalar(1)])])
  return writer.emit('Tanh', [
    writer.emit('Mul', [stretched, writer.scalar(Math.sqrt(2 / Math.PI))]),
  ])
}
