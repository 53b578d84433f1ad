import type { LowBitReader } from './bits.ts'
import { addVector, readEntry } from './vorbis-codebook.ts'
import type { Residue, VorbisSetup } from './vorbis-setup.ts'

const PASSES = 8

/** Adds the residue of one submap's channels to their spectra (Vorbis I, section 8.6). */
export function readResidue(of: {
  readonly bits: LowBitReader
  readonly setup: VorbisSetup
  readonly residue: Residue
  readonly spectra: readonly Float32Array[]
  readonly isSilent: readonly boolean[]
}): void {
  const { residue, spectra, isSilent } = of
  if (isSilent.every(Boolean)) return
  if (residue.kind !== 2) {
    const audible = spectra.filter((_, channel) => isSilent[channel] !== true)
    readVectors(of, audible)
    return
  }
  // Type 2 codes all channels as one vector of interleaved values.
  const length = (spectra[0]?.length ?? 0) * spectra.length
  const joined = new Float32Array(length)
  try {
    readVectors(of, [joined])
  } finally {
    for (const [channel, spectrum] of spectra.entries()) {
      for (let i = 0; i < spectrum.length; i += 1) {
        spectrum[i] = joined[i * spectra.length + channel] ?? 0
      }
    }
  }
}

function readVectors(
  { bits, setup, residue }: { bits: LowBitReader; setup: VorbisSetup; residue: Residue },
  vectors: readonly Float32Array[],
): void {
  const { partitionSize, classifications } = residue
  const length = vectors[0]?.length ?? 0
  const begin = Math.min(residue.begin, length)
  const partitions = Math.floor((Math.min(residue.end, length) - begin) / partitionSize)
  const classBook = setup.codebooks[residue.classBook]
  if (classBook === undefined || classBook.dimensions === 0) throw new Error('unknown codebook')
  if (partitions <= 0) return
  const classes = vectors.map(() => new Uint8Array(partitions + classBook.dimensions))
  for (let pass = 0; pass < PASSES; pass += 1) {
    for (let partition = 0; partition < partitions; partition += 1) {
      if (pass === 0 && partition % classBook.dimensions === 0) {
        for (const list of classes) {
          let number = readEntry(bits, classBook)
          for (let i = classBook.dimensions - 1; i >= 0; i -= 1) {
            list[partition + i] = number % classifications
            number = Math.floor(number / classifications)
          }
        }
      }
      for (const [index, vector] of vectors.entries()) {
        const book = residue.books[classes[index]?.[partition] ?? 0]?.[pass] ?? -1
        if (book >= 0) addPartition(bits, setup, residue, { book, vector, partition, begin })
      }
    }
  }
}

function addPartition(
  bits: LowBitReader,
  setup: VorbisSetup,
  { kind, partitionSize }: Residue,
  at: { book: number; vector: Float32Array; partition: number; begin: number },
): void {
  const codebook = setup.codebooks[at.book]
  if (codebook === undefined || codebook.dimensions === 0) throw new Error('unknown codebook')
  const { dimensions } = codebook
  // Otherwise a bit could encode many more values than the partition has.
  if (partitionSize % dimensions !== 0) throw new Error('vectors do not fill the partition')
  const { vector } = at
  const start = at.begin + at.partition * partitionSize
  // Type 0 spreads a vector over its partition, the others keep its values together.
  const stride = kind === 0 ? partitionSize / dimensions : 1
  const numVectors = partitionSize / dimensions
  for (let i = 0; i < numVectors; i += 1) {
    const first = start + (kind === 0 ? i : i * dimensions)
    addVector(codebook, readEntry(bits, codebook), (dimension, value) => {
      const place = first + dimension * stride
      vector[place] = (vector[place] ?? 0) + value
    })
  }
}
