import { findModelFile } from '#workers/models/find-model-file.ts'
import { readJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { type ImageTower, openImageTower } from './image-tower.ts'
import { activationOf, checkLabels, readLabels } from './labels.ts'

/** A loaded classifier of images, whose tower computes their logits. */
export interface ImageClassifier {
  readonly modelFile: string
  readonly labels: readonly string[]
  readonly tower: ImageTower
  /** The probability of each label: they sum to 1, unless several labels may hold at once. */
  toProbabilities(logits: readonly number[]): readonly number[]
}

interface ImageClassifierOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
  /** Receives the size of every batch. */
  readonly onBatch?: (size: number) => void
}

/** Throws for a class that labels parts of images, such as `DetrForObjectDetection`. */
function checkTask(file: string, architectures: unknown): void {
  const other = [architectures].flat().find((name) => /For(?!ImageClass)/.test(String(name)))
  if (other === undefined) return
  throw new ModelLoadError(file, `not a classifier of whole images: its class is ${String(other)}`)
}

/** Loads a `…ForImageClassification` export. Throws `ModelLoadError`. */
export async function openImageClassifier({
  onnxFile,
  ...options
}: ImageClassifierOptions): Promise<ImageClassifier> {
  const { folder } = options
  const modelFile = await findModelFile(folder, onnxFile)
  const config = await readJson(folder, 'config.json')
  checkTask(modelFile, config.architectures)
  const own = readLabels(config)
  const { labels } = own
  checkLabels(modelFile, labels, labels.length)
  const reading = { file: modelFile, outputs: ['logits'], width: labels.length }
  const tower = await openImageTower({ ...options, ...reading })
  return { modelFile, labels, tower, toProbabilities: activationOf(own) }
}
