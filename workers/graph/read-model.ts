import { open } from 'node:fs/promises'
import { basename } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { Constant, Graph, Model } from './model.ts'
import {
  assembleConstant,
  assembleGraph,
  assembleModel,
  type GraphPart,
  PartBudget,
  readGraphPart,
} from './read-parts.ts'
import { type Field, FORMS, fieldsOf, HEADER_BYTES_MAX, readField } from './wire.ts'

/** Weights of more bytes than this stay in the file. */
const INLINE_BYTES_MAX = 4096
/** Everything else of the largest decoders takes a few megabytes. */
const GRAPH_BYTES_MAX = 256 << 20
const FIELDS_MAX = 2_000_000
const WINDOW_BYTES = 64 * 1024
// Field numbers of onnx.proto.
const MODEL_GRAPH = 7
const GRAPH_INITIALIZER = 5
const TENSOR_RAW_DATA = 9

/**
 * Reads an ONNX file without its large weights, which become references into the file. Throws
 * `ModelLoadError` when it is not an ONNX model or its graph is too large.
 */
export async function readModelFile(file: string): Promise<Model> {
  const handle = await open(file).catch((error: Error) => {
    throw new ModelLoadError(file, error.message)
  })
  try {
    const { size } = await handle.stat()
    const read = async (start: number, length: number): Promise<Buffer> => {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, start)
      return buffer.subarray(0, bytesRead)
    }
    return await new FileReader({ size, read }, basename(file)).readModel()
  } catch (error) {
    if (error instanceof RangeError) {
      throw new ModelLoadError(file, `not a whole ONNX model: ${error.message}`)
    }
    throw error
  } finally {
    await handle.close()
  }
}

/** A source of bytes that is too large for memory. */
interface ByteSource {
  readonly size: number
  /** Returns fewer bytes at the end of the source. */
  read(start: number, length: number): Promise<Buffer>
}

/** Walks through a file by the headers of its fields, in windows, and skips weights. */
class FileReader {
  readonly #source: ByteSource
  readonly #name: string
  #window: Buffer = Buffer.alloc(0)
  #windowStart = 0
  readonly #budget = new PartBudget()
  #numFields = 0
  #graphBytes = 0

  constructor(source: ByteSource, name: string) {
    this.#source = source
    this.#name = name
  }

  async readModel(): Promise<Model> {
    const parts: Uint8Array[] = []
    let graph: Graph | undefined
    for await (const field of this.#fields(0, this.#source.size)) {
      if (field.number === MODEL_GRAPH && field.form === FORMS.withLength) {
        graph = await this.#readGraph(field)
      } else parts.push(await this.#read(field.from, field.end))
    }
    if (graph === undefined) throw new RangeError('it has no graph')
    return assembleModel(Buffer.concat(parts), graph, this.#budget)
  }

  async #readGraph({ start, end }: Field): Promise<Graph> {
    const parts: GraphPart[] = []
    for await (const field of this.#fields(start, end)) {
      const isLarge = field.end - field.start > INLINE_BYTES_MAX
      if (field.number === GRAPH_INITIALIZER && isLarge) {
        parts.push({ kind: 'constant', constant: await this.#readWeights(field) })
      } else
        for (const part of fieldsOf(await this.#read(field.from, field.end)))
          parts.push(readGraphPart(part, this.#budget))
    }
    return assembleGraph(parts)
  }

  /** A TensorProto without its data if they are raw bytes; other encodings are read. */
  async #readWeights({ start, end }: Field): Promise<Constant> {
    const header: Uint8Array[] = []
    let raw: Field | undefined
    for await (const field of this.#fields(start, end)) {
      const isLarge = field.end - field.start > INLINE_BYTES_MAX
      if (field.number === TENSOR_RAW_DATA && isLarge) raw = field
      else header.push(await this.#read(field.from, field.end))
    }
    const constant = assembleConstant(Buffer.concat(header), this.#budget)
    if (raw === undefined) return constant
    const length = raw.end - raw.start
    return { ...constant, data: { kind: 'file', location: this.#name, offset: raw.start, length } }
  }

  async *#fields(start: number, end: number): AsyncGenerator<Field> {
    for (let at = start; at < end; ) {
      const header = await this.#look(at, Math.min(HEADER_BYTES_MAX, end - at))
      const field = readField(header, 0, { base: at, limit: end })
      if (field === undefined) throw new RangeError(`a field is broken at byte ${at}`)
      this.#numFields += 1
      if (this.#numFields > FIELDS_MAX) throw new RangeError(`it has over ${FIELDS_MAX} parts`)
      yield field
      at = field.end
    }
  }

  /** Bytes that are kept. */
  async #read(start: number, end: number): Promise<Uint8Array> {
    this.#graphBytes += end - start
    if (this.#graphBytes > GRAPH_BYTES_MAX) {
      throw new RangeError(`its graph has over ${GRAPH_BYTES_MAX >> 20} MiB besides its weights`)
    }
    if (end - start > WINDOW_BYTES) return await this.#source.read(start, end - start)
    return Uint8Array.from(await this.#look(start, end - start))
  }

  /** Bytes that are valid until the next call: small reads that are mostly consecutive. */
  async #look(start: number, length: number): Promise<Buffer> {
    const isHere =
      start >= this.#windowStart && start + length <= this.#windowStart + this.#window.length
    if (!isHere) {
      this.#window = await this.#source.read(start, WINDOW_BYTES)
      this.#windowStart = start
    }
    const at = start - this.#windowStart
    return this.#window.subarray(at, at + length)
  }
}
