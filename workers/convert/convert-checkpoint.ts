import { mkdir, rename, rm, stat, statfs, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { DataFile } from '#workers/graph/data-file.ts'
import type { Constant } from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { copyConfiguration } from '#workers/models/copy-configuration.ts'
import { withFileLock } from '#workers/models/file-lock.ts'
import { readJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { Checkpoint } from './checkpoint.ts'
import { type DecoderShape, readDecoderShape } from './decoder-shape.ts'
import type { TensorNames } from './decoder-writer.ts'
import { type DecoderPlan, planDecoder } from './plan-decoder.ts'
import type { WeightForm } from './weight-forms.ts'

const GRAPH_FILE = 'model.onnx'
const DATA_FILE = 'model.onnx.data'
/** Room for the graph, the tokenizer and the configuration. */
const OTHER_BYTES = 64 << 20

/** The target of a conversion. */
interface ConvertOptions {
  /** A folder in the Hugging Face layout, with `config.json` and safetensors files. */
  readonly folder: string
  /** The new folder, which appears when it is complete. */
  readonly target: string
  readonly form: WeightForm
  readonly onProgress?: (progress: ConvertProgress) => void
}

/** The progress of a conversion. */
interface ConvertProgress {
  readonly doneBytes: number
  readonly totalBytes: number
  /** The tensor that was written last, by its name in the graph. */
  readonly file: string
}

/**
 * Writes the model of a checkpoint as a graph that the engine runs with an in-place cache.
 * Architecture, shapes and free disk space are checked before anything is written; one tensor is in
 * memory at a time. Throws `ModelLoadError` for a model that cannot be converted exactly.
 */
export async function convertCheckpoint(options: ConvertOptions): Promise<void> {
  const { folder, target, form } = options
  const config = await readJson(folder, 'config.json')
  const shape = readDecoderShape(folder, config)
  if (form.type === 'float16' && shape.family.exceedsHalf === true) {
    throw new ModelLoadError(
      folder,
      `activations of ${shape.architecture} exceed half precision: convert to fp32, int8 or int4`,
    )
  }
  const checkpoint = await Checkpoint.open(folder)
  try {
    const plan = planOf(checkpoint, shape, form)
    await withFileLock(`${target}.lock`, async () => {
      await refuseExisting(target)
      const staged = `${target}.part`
      // Removes the remains of a conversion that was killed.
      await rm(staged, { recursive: true, force: true })
      await requireRoom(target, plan)
      try {
        await writeAll(staged, { ...options, checkpoint, plan })
        await copyConfiguration(folder, staged, { options: {}, layout: 'checkpoint' })
        await flattenConfig(staged, config, shape)
        await rename(staged, target)
      } finally {
        await rm(staged, { recursive: true, force: true })
      }
    })
  } finally {
    await checkpoint.close()
  }
}

/** Checks the tensors against those that the graph reads. */
function planOf(checkpoint: Checkpoint, shape: DecoderShape, form: WeightForm): DecoderPlan {
  const names = findNames(checkpoint)
  const head = `${names.head}lm_head.weight`
  const isTied = shape.isTied ?? !checkpoint.has(head)
  const plan = planDecoder(shape, { form, names, isTied })
  const sources = plan.weights.flatMap(({ source }) => source ?? [])
  for (const { name, dims } of sources) checkpoint.check(name, dims)
  const known = new Set(sources.map(({ name }) => name))
  if (isTied) known.add(head)
  const unknown = checkpoint.names.find((name) => !known.has(name) && !IGNORED.test(name))
  if (unknown === undefined) return plan
  throw new ModelLoadError(
    checkpoint.folder,
    `the tensor ${unknown} has no place in a ${shape.architecture} of ${shape.layers.length} layers`,
  )
}

/** Tensors that are derived from config.json, and those for images. */
const IGNORED = /rotary_emb\.inv_freq$|^(model\.)?(vision_tower|multi_modal_projector)\./

/** Tensor names of decoders, alone and within models of images and text. */
const NAMES: readonly TensorNames[] = [
  { decoder: 'model.', head: '' },
  { decoder: 'language_model.model.', head: 'language_model.' },
  { decoder: 'model.language_model.', head: '' },
]

function findNames(checkpoint: Checkpoint): TensorNames {
  const found = NAMES.find(({ decoder }) => checkpoint.has(`${decoder}embed_tokens.weight`))
  if (found !== undefined) return found
  throw new ModelLoadError(checkpoint.folder, 'the tensor model.embed_tokens.weight is missing')
}

async function refuseExisting(target: string): Promise<void> {
  const found = await stat(target).catch(() => undefined)
  if (found !== undefined) throw new Error(`${target} exists already: name a new folder`)
}

/** Throws if the disk has less room than the model takes. */
async function requireRoom(target: string, { weights }: DecoderPlan): Promise<void> {
  const wanted = weights.reduce((sum, { bytes }) => sum + bytes, OTHER_BYTES)
  const { bavail, bsize } = await statfs(dirname(target))
  if (bavail * bsize >= wanted) return
  throw new Error(
    `${dirname(target)} has ${bavail * bsize} bytes of free space, but the model takes ${wanted}`,
  )
}

async function writeAll(
  staged: string,
  {
    checkpoint,
    plan,
    onProgress,
  }: ConvertOptions & { readonly checkpoint: Checkpoint; readonly plan: DecoderPlan },
): Promise<void> {
  await mkdir(join(staged, 'onnx'), { recursive: true })
  const data = await DataFile.create(join(staged, 'onnx', DATA_FILE))
  const totalBytes = plan.weights.reduce((sum, { bytes }) => sum + bytes, 0)
  const stored: Constant[] = []
  let doneBytes = 0
  try {
    for (const weights of plan.weights) {
      const constants = await weights.write(checkpoint, data)
      stored.push(...constants)
      doneBytes += weights.bytes
      onProgress?.({ doneBytes, totalBytes, file: constants[0]?.name ?? '' })
    }
  } finally {
    await data.finish()
  }
  await writeFile(join(staged, 'onnx', GRAPH_FILE), writeModel(plan.makeModel(stored)))
}

/** The group with the decoder's settings replaces the whole, because the rest is not converted. */
async function flattenConfig(
  staged: string,
  config: Readonly<Record<string, unknown>>,
  { positions, numHeads }: DecoderShape,
): Promise<void> {
  const { text_config: inner, vision_config: _images, ...outer } = config
  if (!isRecord(inner)) return
  const sizes = { max_position_embeddings: positions, num_attention_heads: numHeads }
  const text = JSON.stringify({ ...outer, ...inner, ...sizes }, undefined, 2)
  await writeFile(join(staged, 'config.json'), `${text}\n`)
}
