import { isRecord } from '#shared/json.ts'
import { findJson } from '#workers/models/folder-json.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import { isFloatType } from '#workers/tensor/float-types.ts'
import { SafetensorsFile } from '#workers/tensor/safetensors-file.ts'

const WEIGHTS_FILE = 'model.safetensors'
const INDEX_FILE = 'model.safetensors.index.json'
const SHARDS_MAX = 2000
const LIMITS = {
  bytesMax: 2 ** 43, // larger than any file system supports for one file
  headerBytesMax: 100_000_000, // the limit of the format
}

/** The weights of a model in the Hugging Face layout, in one file or in several. */
export class Checkpoint {
  readonly folder: string
  readonly #files: readonly SafetensorsFile[]
  readonly #places: ReadonlyMap<string, SafetensorsFile>

  private constructor(folder: string, files: readonly SafetensorsFile[]) {
    this.folder = folder
    this.#files = files
    const places = new Map<string, SafetensorsFile>()
    for (const file of files) {
      for (const name of file.tensors.keys()) {
        if (places.has(name)) throw new ModelLoadError(folder, `the tensor ${name} is there twice`)
        places.set(name, file)
      }
    }
    this.#places = places
  }

  /**
   * Opens the files and reads their headers. Throws `ModelLoadError` for files that are missing,
   * damaged or outside the folder, and for tensors that the index names but no file has.
   */
  static async open(folder: string): Promise<Checkpoint> {
    const { names, tensors } = await listShards(folder)
    const files: SafetensorsFile[] = []
    try {
      for (const name of names) files.push(await openShard(folder, name))
      const checkpoint = new Checkpoint(folder, files)
      const missing = tensors.find((name) => !checkpoint.has(name))
      if (missing === undefined) return checkpoint
      throw new ModelLoadError(folder, `the tensor ${missing} is in ${INDEX_FILE}, but in no file`)
    } catch (error) {
      for (const file of files) await file.close()
      throw error
    }
  }

  get names(): readonly string[] {
    return [...this.#places.keys()]
  }

  has(name: string): boolean {
    return this.#places.has(name)
  }

  /** Throws `ModelLoadError` unless the tensor exists with this shape and a supported type. */
  check(name: string, dims: readonly number[]): void {
    const entry = this.#places.get(name)?.tensors.get(name)
    if (entry === undefined) throw this.#fault(`the tensor ${name} is missing`)
    if (!isFloatType(entry.type)) {
      throw this.#fault(
        `the tensor ${name} has the type ${entry.type}, but only F32, F16 and BF16 are converted`,
      )
    }
    if (entry.dims.length === dims.length && dims.every((dim, axis) => dim === entry.dims[axis])) {
      return
    }
    throw this.#fault(
      `the tensor ${name} is [${entry.dims.join(', ')}], but config.json says [${dims.join(', ')}]`,
    )
  }

  /** Reads all elements of a tensor, or a range of them. Refuses NaN and infinity. */
  async read(
    name: string,
    range: { readonly first?: number; readonly count?: number } = {},
  ): Promise<Float32Array> {
    const file = this.#places.get(name)
    if (file === undefined) throw this.#fault(`the tensor ${name} is missing`)
    const values = await file.read(name, range).catch((error: Error) => {
      throw this.#fault(error.message)
    })
    for (let at = 0; at < values.length; at += 1) {
      if (Number.isFinite(values[at])) continue
      throw this.#fault(`the tensor ${name} has elements that are NaN or infinite`)
    }
    return values
  }

  async close(): Promise<void> {
    for (const file of this.#files) await file.close()
  }

  #fault(reason: string): ModelLoadError {
    return new ModelLoadError(this.folder, reason)
  }
}

/** The files of weights, and the tensors that they must contain. */
async function listShards(
  folder: string,
): Promise<{ readonly names: readonly string[]; readonly tensors: readonly string[] }> {
  const index = await findJson(folder, INDEX_FILE)
  if (index === undefined) return { names: [WEIGHTS_FILE], tensors: [] }
  const { weight_map: map } = index
  const places = isRecord(map) ? Object.values(map) : []
  if (places.length === 0 || !places.every((place) => typeof place === 'string')) {
    throw new ModelLoadError(folder, `${INDEX_FILE} has no weight_map of tensors and files`)
  }
  const names = [...new Set(places as string[])].toSorted()
  if (names.length > SHARDS_MAX) {
    throw new ModelLoadError(folder, `${INDEX_FILE} names more than ${SHARDS_MAX} files`)
  }
  return { names, tensors: Object.keys(map as object) }
}

async function openShard(folder: string, name: string): Promise<SafetensorsFile> {
  try {
    return await SafetensorsFile.open(await pathInside(folder, name), LIMITS)
  } catch (error) {
    if (error instanceof ModelLoadError) throw error
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') throw new ModelLoadError(folder, `${name} is missing`)
    throw new ModelLoadError(folder, message)
  }
}
