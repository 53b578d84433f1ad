import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { readFileWithin } from '#shared/read-file.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { floatsOf, readNpy } from './npy.ts'
import { isZip, readNpz } from './npz.ts'

/** The styles of voices: for each number of tokens one of `STYLE_SIZE` floats. */
export type Styles = ReadonlyMap<string, Float32Array>

/** Floats of a style. */
export const STYLE_SIZE = 256
const VOICES_MAX = 200
/** All voices together; the 103 of version 1.1 take 54 MB. */
const VOICES_BYTES_MAX = 128 * 1024 ** 2
const STYLE_FILE = /^(.+)\.(bin|npy)$/
const ARCHIVE = /^voices[\w.-]*\.(bin|npz)$/

/**
 * Reads the styles of voices from `voices/`, one file per voice, or from one file beside the graph:
 * a NumPy archive, or the concatenated styles of the named voices. Throws `ModelLoadError` with the
 * name of the invalid file.
 */
export async function readStyles(folder: string, names: readonly string[] = []): Promise<Styles> {
  const files = await listNames(join(folder, 'voices'), STYLE_FILE)
  const archives = files.length === 0 ? await listNames(folder, ARCHIVE) : []
  if (files.length > VOICES_MAX || (files.length === 0 && archives.length !== 1)) {
    throw new ModelLoadError(
      folder,
      `expected 1 to ${VOICES_MAX} files voices/*.bin or voices/*.npy, or one archive voices*.bin or voices*.npz`,
    )
  }
  const [archive] = archives
  return archive === undefined ? readFiles(folder, files) : readArchive(folder, archive, names)
}

async function readFiles(folder: string, files: readonly string[]): Promise<Styles> {
  const styles = new Map<string, Float32Array>()
  let bytesLeft = VOICES_BYTES_MAX
  for (const file of files) {
    const path = `voices/${file}`
    const style = await orLoadError(folder, path, async () => {
      const bytes = await readFileWithin(await pathInside(folder, path), bytesLeft)
      bytesLeft -= bytes.length
      return file.endsWith('.npy') ? styleOfArray(bytes) : styleOfFloats(bytes)
    })
    styles.set(file.replace(STYLE_FILE, '$1'), style)
  }
  return styles
}

function readArchive(folder: string, name: string, names: readonly string[]): Promise<Styles> {
  return orLoadError(folder, name, async () => {
    const bytes = await readFileWithin(await pathInside(folder, name), VOICES_BYTES_MAX)
    if (!isZip(bytes) && names.length > 0) return stylesOfAll(bytes, names)
    if (!isZip(bytes)) {
      throw new Error(
        'it is not a NumPy archive (.npz), and the metadata of the graph has no speaker_names, which sherpa-onnx writes',
      )
    }
    const arrays = await readNpz(bytes, { entriesMax: VOICES_MAX, bytesMax: VOICES_BYTES_MAX })
    if (arrays.size === 0) throw new Error('it has no voices')
    const styles = new Map<string, Float32Array>()
    for (const [voice, array] of [...arrays].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      styles.set(voice, await orLoadError(folder, `${name}: ${voice}`, () => styleOfArray(array)))
    }
    return styles
  })
}

/** Splits a file of concatenated styles of equal size. */
function stylesOfAll(bytes: Buffer, names: readonly string[]): Styles {
  if (names.length > VOICES_MAX) throw new Error(`it has more than ${VOICES_MAX} voices`)
  const size = bytes.length / names.length
  if (!Number.isInteger(size)) {
    throw new Error(`its size is not a multiple of ${names.length}, the number of voices`)
  }
  return new Map(
    names.map((name, at) => [name, styleOfFloats(bytes.subarray(at * size, (at + 1) * size))]),
  )
}

function styleOfFloats(bytes: Buffer): Float32Array {
  if (bytes.length > 0 && bytes.length % (4 * STYLE_SIZE) === 0) return floatsOf(bytes)
  throw new Error(`it is not a list of ${STYLE_SIZE} floats each`)
}

function styleOfArray(bytes: Buffer): Float32Array {
  const { shape, values } = readNpy(bytes)
  const [rows, ...sizes] = shape
  const isList = sizes.at(-1) === STYLE_SIZE && sizes.slice(0, -1).every((size) => size === 1)
  if (isList && rows !== 0) return values
  throw new Error(`its shape is (${shape.join(', ')}), expected (n, 1, ${STYLE_SIZE})`)
}

async function listNames(folder: string, pattern: RegExp): Promise<readonly string[]> {
  const names = await readdir(folder).catch(() => [])
  return names.filter((name) => pattern.test(name)).toSorted()
}

async function orLoadError<Value>(
  folder: string,
  name: string,
  read: () => Value | Promise<Value>,
): Promise<Value> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ModelLoadError) throw error
    throw new ModelLoadError(folder, `${name}: ${(error as Error).message}`)
  }
}
