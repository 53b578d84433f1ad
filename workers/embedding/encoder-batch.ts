import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Feeds, ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

/** A text as an encoder reads it. */
export interface EncodedText {
  readonly tokenIds: readonly number[]
  /** Which of two texts a token belongs to; all of the first when absent. */
  readonly typeIds?: readonly number[]
}

/** The input tensors of a batch, padded on the right to its longest text. */
export interface EncoderBatch {
  readonly feeds: Feeds
  readonly width: number
  readonly mask: BigInt64Array
  dispose(): void
}

/** Builds whatever of the usual inputs the model has. Throws naming an input that it cannot fill. */
export function buildBatch(
  runtime: Runtime,
  session: ModelSession,
  texts: readonly EncodedText[],
  paddingId: number,
): EncoderBatch {
  const width = Math.max(1, ...texts.map(({ tokenIds }) => tokenIds.length))
  const table = (valueAt: (text: EncodedText, position: number) => number, padding: number) => {
    const values = new BigInt64Array(texts.length * width).fill(BigInt(padding))
    for (const [row, text] of texts.entries()) {
      for (let position = 0; position < text.tokenIds.length; position++) {
        values[row * width + position] = BigInt(valueAt(text, position))
      }
    }
    return values
  }
  const mask = table(() => 1, 0)
  const inputs: Readonly<Record<string, () => BigInt64Array>> = {
    input_ids: () => table(({ tokenIds }, position) => tokenIds[position] as number, paddingId),
    attention_mask: () => mask,
    token_type_ids: () => table(({ typeIds }, position) => typeIds?.[position] ?? 0, 0),
    position_ids: () => table((_text, position) => position, 0),
  }
  const feeds: Record<string, Tensor> = {}
  for (const { name } of session.inputs) {
    const make = inputs[name]
    if (make === undefined) throw new Error(`${session.file}: the input ${name} is not known`)
    feeds[name] = runtime.tensor('int64', make(), [texts.length, width])
  }
  return {
    feeds,
    width,
    mask,
    dispose() {
      for (const tensor of Object.values(feeds)) tensor.dispose()
    },
  }
}

/** Elements of a float tensor as float32, whatever the precision of the export. */
export function toFloat32(tensor: Tensor): Float32Array {
  return tensor.data instanceof Float32Array
    ? tensor.data
    : Float32Array.from(tensor.data as ArrayLike<number>)
}
