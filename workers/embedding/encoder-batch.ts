import { defined } from '#shared/json.ts'
import { readTablePositions } from '#workers/graph/position-tables.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Feeds, ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

/** A text in the form of an encoder's input. */
export interface EncodedText {
  readonly tokenIds: readonly number[]
  /** Which of two texts a token belongs to; all belong to the first when absent. */
  readonly typeIds?: readonly number[]
  /** The adapter of the model for this text; the same for all texts of a batch. */
  readonly taskId?: number
  /** The number of leading tokens that others attend to; all of them when absent. */
  readonly attendedCount?: number
}

/** The input tensors of a batch, padded on the right to its longest text. */
interface EncoderBatch {
  readonly feeds: Feeds
  readonly width: number
  readonly mask: BigInt64Array
  dispose(): void
}

/** The layout of a model's batches. */
interface BatchLayout {
  readonly paddingId: number
  readonly firstPosition: number
  /** The length of every batch of a model that also reads padding. */
  readonly paddedLength?: number | undefined
}

const KNOWN_INPUTS = ['input_ids', 'attention_mask', 'token_type_ids', 'position_ids']
const TASK = 'task_id' // the low-rank adapter of a run, in Jina's models
const OFFSETS = 'offsets' // where each text begins in one list of ids, in static embeddings
const PAST = 'past_key_values.' // for decoders that are used as encoders: an empty cache

/** Additional inputs that encoders of vectors may have. */
export const ENCODER_INPUTS: readonly string[] = [TASK, OFFSETS]

/** The number and the length of texts that a graph states; absent where it takes any. */
interface StatedShape {
  readonly rows?: number
  readonly width?: number
}

/** The shape of `input_ids` of a graph. */
export function statedShapeOf({ inputs }: Pick<ModelSession, 'inputs'>): StatedShape {
  const ids = inputs.find(({ name }) => name === 'input_ids')
  const [rows, width] = ids?.dims.length === 2 ? ids.dims : []
  return {
    ...(typeof rows === 'number' && { rows }),
    ...(typeof width === 'number' && { width }),
  }
}

/** The tokens of the longest text that a graph takes, at most `tokensMax`. */
export async function contextLengthIn(
  session: Pick<ModelSession, 'inputs' | 'file'>,
  ...tokensMax: readonly (number | undefined)[]
): Promise<number> {
  const { width } = statedShapeOf(session)
  const limits = [...tokensMax, width, await readTablePositions(session.file)]
  return Math.min(...limits.filter((count) => count !== undefined))
}

/** Whether texts can be filled up to the size: one row, and a length behind a mask. */
function isFillable(dims: readonly (number | string)[], isMasked: boolean): boolean {
  const [rows, width] = dims
  const isOne = rows === 1 || typeof rows === 'string'
  return dims.length === 2 && isOne && (typeof width === 'string' || isMasked)
}

/**
 * Throws `ModelLoadError` naming an input that cannot be filled. A graph may state one row, and
 * with a mask the length of its texts.
 */
export function checkInputs(
  { file, inputs }: Pick<ModelSession, 'file' | 'inputs'>,
  special: readonly string[] = [],
): void {
  const isMasked = inputs.some(({ name }) => name === 'attention_mask')
  for (const { name, type, dims } of inputs) {
    if (name.startsWith(PAST)) {
      const [, heads, , size] = dims
      if (typeof heads === 'number' && typeof size === 'number' && type !== undefined) continue
      throw new ModelLoadError(file, `${name} is not a cache of [batch, heads, length, size]`)
    }
    if (special.includes(name)) {
      if (type === 'int64' && dims.length <= 1) continue
      throw new ModelLoadError(file, `${name} must be int64 of at most one dimension`)
    }
    if (name === 'decoder_input_ids') {
      throw new ModelLoadError(
        file,
        'the graph contains a decoder too; export the encoder alone, such as T5EncoderModel with torch.onnx.export',
      )
    }
    if (!KNOWN_INPUTS.includes(name)) {
      throw new ModelLoadError(file, `the encoder needs an unknown input ${name}`)
    }
    if (type !== 'int64' && type !== 'int32') {
      throw new ModelLoadError(file, `${name} must be int64 or int32, not ${type ?? 'other'}`)
    }
    if (isBag({ inputs }) && name === 'input_ids' && dims.length === 1) continue
    if (!isFillable(dims, isMasked)) {
      const shape = dims.map((dim) => (dim === '' ? '?' : dim)).join(', ')
      throw new ModelLoadError(
        file,
        `${name} must be [batch, length] of any size, of one row, or with attention_mask of one length, not [${shape}]`,
      )
    }
  }
  if (inputs.some(({ name }) => name === 'input_ids')) return
  throw new ModelLoadError(file, 'not a text encoder: it has no input_ids')
}

/**
 * Whether a graph reads the ids of all texts as one list, and averages the vectors of each text.
 */
export function isBag({ inputs }: Pick<ModelSession, 'inputs'>): boolean {
  return inputs.some(({ name }) => name === OFFSETS)
}

/** Whether a graph has several adapters. */
export function hasTasks({ inputs }: Pick<ModelSession, 'inputs'>): boolean {
  return inputs.some(({ name }) => name === TASK)
}

/** Builds the usual inputs that the model has. */
export function buildBatch(
  runtime: Runtime,
  session: ModelSession,
  texts: readonly EncodedText[],
  { paddingId, firstPosition, paddedLength }: BatchLayout,
): EncoderBatch {
  if (isBag(session)) return buildBag(runtime, texts, { paddingId })
  const stated = paddedLength ?? statedShapeOf(session).width
  const width = stated ?? Math.max(1, ...texts.map(({ tokenIds }) => tokenIds.length))
  const table = (valueAt: (text: EncodedText, position: number) => number, padding: number) => {
    const values = new BigInt64Array(texts.length * width).fill(BigInt(padding))
    for (const [row, text] of texts.entries()) {
      for (let position = 0; position < text.tokenIds.length; position++) {
        values[row * width + position] = BigInt(valueAt(text, position))
      }
    }
    return values
  }
  const isRead = ({ attendedCount = Infinity }: EncodedText, position: number): number =>
    position < attendedCount ? 1 : 0
  const mask = table(isRead, paddedLength === undefined ? 0 : 1)
  const inputs: Readonly<Record<string, () => BigInt64Array>> = {
    input_ids: () => table(({ tokenIds }, position) => tokenIds[position] as number, paddingId),
    attention_mask: () => mask,
    token_type_ids: () => table(({ typeIds }, position) => typeIds?.[position] ?? 0, 0),
    position_ids: () => table((_text, position) => position + firstPosition, 0),
  }
  const feeds: Record<string, Tensor> = {}
  for (const { name, type, dims } of session.inputs) {
    const values = inputs[name]?.()
    if (name === TASK) {
      const taskId = BigInt64Array.of(BigInt(texts[0]?.taskId ?? 0))
      feeds[name] = runtime.tensor('int64', taskId, dims.length === 0 ? [] : [1])
    } else if (values === undefined) {
      const [, heads, , size] = dims as readonly number[]
      feeds[name] = runtime.zeros(defined(type), [texts.length, defined(heads), 0, defined(size)])
    } else {
      const data = type === 'int32' ? Int32Array.from(values, Number) : values
      feeds[name] = runtime.tensor(defined(type), data, [texts.length, width])
    }
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

/** The ids of all texts as one list. A text without tokens contains the padding token. */
function buildBag(
  runtime: Runtime,
  texts: readonly EncodedText[],
  { paddingId }: Pick<BatchLayout, 'paddingId'>,
): EncoderBatch {
  const ids: bigint[] = []
  const offsets: bigint[] = []
  for (const { tokenIds } of texts) {
    offsets.push(BigInt(ids.length))
    for (const id of tokenIds.length === 0 ? [paddingId] : tokenIds) ids.push(BigInt(id))
  }
  const feeds = {
    input_ids: runtime.tensor('int64', BigInt64Array.from(ids), [ids.length]),
    offsets: runtime.tensor('int64', BigInt64Array.from(offsets), [offsets.length]),
  }
  return {
    feeds,
    // The graph computes the means itself, so texts are not padded.
    width: 0,
    mask: new BigInt64Array(0),
    dispose() {
      for (const tensor of Object.values(feeds)) tensor.dispose()
    },
  }
}

/** Elements of a float tensor as float32, for any precision of the export. */
export function toFloat32(tensor: Tensor): Float32Array {
  return tensor.data instanceof Float32Array
    ? tensor.data
    : Float32Array.from(tensor.data as ArrayLike<number>)
}
