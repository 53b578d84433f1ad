import { EndOfBitsError, LowBitReader } from './bits.ts'
import { createInverseMdct } from './imdct.ts'
import type { PacketDecoder, Pcm } from './pcm.ts'
import { bitLength } from './vorbis-codebook.ts'
import { readFloorCurve } from './vorbis-floor.ts'
import { readResidue } from './vorbis-residue.ts'
import { type Mapping, readSetup, type VorbisSetup } from './vorbis-setup.ts'

/** Decodes the audio packets of one Vorbis stream (Vorbis I, section 4.3). */
export function createVorbisDecoder(
  identification: Uint8Array,
  setupHeader: Uint8Array,
): PacketDecoder {
  const setup = readSetup(identification, setupHeader)
  const transforms = setup.blockSizes.map((size) => createInverseMdct(size))
  const windows = setup.blockSizes.map((size) => slopeOf(size / 2))
  // The windowed second half of the previous block; empty before the first one.
  let held: readonly Float32Array[] = []

  function decode(packet: Uint8Array): Pcm | undefined {
    const bits = new LowBitReader(packet)
    if (bits.readFlag()) return undefined
    const mode = setup.modes[bits.read(bitLength(setup.modes.length - 1))]
    const mapping = mode && setup.mappings[mode.mapping]
    if (mode === undefined || mapping === undefined) throw new Error('unknown mode')
    const isLong = mode.isLong
    const isBeforeLong = isLong && bits.readFlag()
    const isAfterLong = isLong && bits.readFlag()
    const size = setup.blockSizes[isLong ? 1 : 0]
    const spectra = readSpectra(bits, setup, mapping, size / 2)
    const blocks = spectra.map((spectrum) => transforms[isLong ? 1 : 0]?.(spectrum) ?? spectrum)
    const rising = windows[isBeforeLong ? 1 : 0] ?? []
    const falling = windows[isAfterLong ? 1 : 0] ?? []
    const halves = blocks.map((block) => applyWindow(block, rising, falling))
    const before = held
    held = halves.map(({ second }) => second)
    if (before.length === 0) return undefined
    const channels = halves.map(({ first }, channel) => overlap(before[channel], first))
    return { channels, sampleRate: setup.sampleRate }
  }

  return { decode }
}

function readSpectra(
  bits: LowBitReader,
  setup: VorbisSetup,
  mapping: Mapping,
  length: number,
): Float32Array[] {
  const floors = mapping.submapOf.map((submap) => {
    const floor = setup.floors[mapping.submaps[submap]?.floor ?? -1]
    if (floor === undefined) throw new Error('unknown floor')
    return readFloorCurve(bits, setup, floor, length)
  })
  // A channel without a floor is silent, unless it is coupled with one that is not.
  const isSilent = floors.map((floor) => floor === undefined)
  for (const { magnitude, angle } of mapping.couplings) {
    if (isSilent[magnitude] === true && isSilent[angle] === true) continue
    isSilent[magnitude] = false
    isSilent[angle] = false
  }
  const spectra = floors.map(() => new Float32Array(length))
  for (const [index, { residue: number }] of mapping.submaps.entries()) {
    const residue = setup.residues[number]
    if (residue === undefined) throw new Error('unknown residue')
    const isMember = (channel: number) => mapping.submapOf[channel] === index
    const members = spectra.filter((_, channel) => isMember(channel))
    const silence = isSilent.filter((_, channel) => isMember(channel))
    try {
      readResidue({ bits, setup, residue, spectra: members, isSilent: silence })
    } catch (error) {
      // A packet that ends early keeps the values it contained.
      if (!(error instanceof EndOfBitsError)) throw error
    }
  }
  for (const { magnitude, angle } of mapping.couplings.toReversed()) {
    uncouple(spectra[magnitude], spectra[angle])
  }
  for (const [channel, spectrum] of spectra.entries()) {
    const floor = floors[channel]
    for (let i = 0; i < length; i += 1) spectrum[i] = (spectrum[i] ?? 0) * (floor?.[i] ?? 0)
  }
  return spectra
}

/** Turns magnitude and angle back into two channels (section 1.3.3). */
function uncouple(magnitudes: Float32Array | undefined, angles: Float32Array | undefined): void {
  if (magnitudes === undefined || angles === undefined) return
  for (let i = 0; i < magnitudes.length; i += 1) {
    const m = magnitudes[i] ?? 0
    const a = angles[i] ?? 0
    const other = m > 0 ? m - Math.abs(a) : m + Math.abs(a)
    magnitudes[i] = a > 0 ? m : other
    angles[i] = a > 0 ? other : m
  }
}

function slopeOf(length: number): Float32Array {
  return Float32Array.from({ length }, (_, n) => {
    const inner = Math.sin(((n + 0.5) / length) * (Math.PI / 2))
    return Math.sin((Math.PI / 2) * inner * inner)
  })
}

/** Both halves of a block; each slope is in the middle of its half. */
function applyWindow(block: Float32Array, rising: ArrayLike<number>, falling: ArrayLike<number>) {
  const half = block.length / 2
  const first = block.slice(0, half)
  const second = block.slice(half)
  const riseStart = (half - rising.length) / 2
  for (let n = 0; n < half; n += 1) {
    const at = n - riseStart
    if (at < rising.length) first[n] = at < 0 ? 0 : (first[n] ?? 0) * (rising[at] ?? 0)
  }
  const fallStart = (half - falling.length) / 2
  for (let n = Math.max(0, fallStart); n < half; n += 1) {
    const at = n - fallStart
    second[n] = at < falling.length ? (second[n] ?? 0) * (falling[falling.length - 1 - at] ?? 0) : 0
  }
  return { first, second }
}

/** The samples between the centers of two neighbouring blocks. */
function overlap(before: Float32Array | undefined, after: Float32Array): Float32Array {
  const held = before ?? new Float32Array(0)
  const samples = new Float32Array((held.length + after.length) / 2)
  // For blocks of different lengths, the longer one is flat or silent beyond the shorter.
  const afterStart = samples.length - after.length
  for (let n = 0; n < samples.length; n += 1) {
    samples[n] = (held[n] ?? 0) + (after[n - afterStart] ?? 0)
  }
  return samples
}
