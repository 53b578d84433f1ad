import type { TrainingCheckpoint, TrainingProgress } from '#shared/contracts/training.ts'
import { isRecord } from '#shared/json.ts'

import { AdamW } from './optimizer.ts'
import type { Reached } from './trainer.ts'

/** The stored parts of a training, with which another worker continues it. */
export interface TrainingState {
  readonly optimizer: AdamW
  readonly reached: Reached
  /** Stored adapters, oldest first. */
  readonly checkpoints: readonly TrainingCheckpoint[]
  /** The last steps, whose reports may have arrived after the API process stopped reading. */
  readonly recent: readonly TrainingProgress[]
}

/** The state before the first step. */
export function beginState(elements: Float32Array<ArrayBuffer>): TrainingState {
  return {
    optimizer: new AdamW(elements),
    reached: { trainedTokens: 0, trainLoss: 0, validationLoss: null, best: null, staleEpochs: 0 },
    checkpoints: [],
    recent: [],
  }
}

const VERSION = 2
const LENGTH_BYTES = 4
const FLOAT_BYTES = 4

/**
 * Written as one object, so that a state is stored completely or not at all: a JSON header and the
 * elements.
 */
export function writeState(
  { optimizer, reached, checkpoints, recent }: TrainingState,
  fingerprint: string,
): Buffer {
  const { best, ...numbers } = reached
  const header = Buffer.from(
    JSON.stringify({
      version: VERSION,
      fingerprint,
      steps: optimizer.steps,
      checkpoints,
      numbers,
      recent,
      best: best && { step: best.step, loss: best.loss },
    }),
  )
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt32LE(header.length)
  const arrays = [optimizer.elements, ...optimizer.moments, ...(best ? [best.elements] : [])]
  return Buffer.concat([
    length,
    header,
    ...arrays.map(({ buffer, byteOffset, byteLength }) =>
      Buffer.from(buffer, byteOffset, byteLength),
    ),
  ])
}

/**
 * The state in an object; undefined when it belongs to another training, for instance after a
 * change of the base model.
 */
export function readState(
  object: Buffer,
  { fingerprint, size }: { readonly fingerprint: string; readonly size: number },
): TrainingState | undefined {
  const start = LENGTH_BYTES + (object.length < LENGTH_BYTES ? 0 : object.readUInt32LE(0))
  if (start > object.length) return undefined
  const header: unknown = JSON.parse(object.toString('utf8', LENGTH_BYTES, start))
  if (!isRecord(header) || header.version !== VERSION) return undefined
  if (header.fingerprint !== fingerprint) return undefined
  const { steps, checkpoints, recent, numbers, best } = header as unknown as StoredHeader
  const array = (index: number): Float32Array<ArrayBuffer> => {
    const from = object.byteOffset + start + index * size * FLOAT_BYTES
    return new Float32Array(object.buffer.slice(from, from + size * FLOAT_BYTES) as ArrayBuffer)
  }
  const optimizer = new AdamW(array(0), { steps, moments: [array(1), array(2)] })
  return {
    optimizer,
    reached: { ...numbers, best: best && { ...best, elements: array(3) } },
    checkpoints,
    recent,
  }
}

interface StoredHeader {
  readonly steps: number
  readonly checkpoints: readonly TrainingCheckpoint[]
  readonly recent: readonly TrainingProgress[]
  readonly numbers: Omit<Reached, 'best'>
  readonly best: { readonly step: number; readonly loss: number } | null
}
