import type { Settings } from './settings.ts'

/** Rotations of the positions of a text: an angle for each pair of a head's elements. */
export interface Rotation {
  /** Elements of a head that are rotated. */
  readonly width: number
  /** Angle from one position to the next, for each pair. */
  readonly frequencies: Float32Array
  /** The factor of cosines and sines. */
  readonly factor: number
  /** Frequencies of texts that are longer than the given positions (LongRoPE). */
  readonly long?: { readonly frequencies: Float32Array; readonly from: number }
}

/** The parameters of the frequencies. */
interface RotaryParts {
  readonly base: number
  readonly width: number
  /** Positions that the model was made for. */
  readonly positions: number
  readonly settings: Settings
}

type Frequencies = Omit<Rotation, 'width'>

const POSITIONS_MAX = 1 << 24

/** Reads the rotation of heads. Throws `ModelLoadError` for types that are not supported. */
export function readRotation(
  settings: Settings,
  parts: Omit<RotaryParts, 'settings'> & { readonly isPhi: boolean },
): Rotation {
  const stated = settings.findText('rope_type') ?? settings.findText('type') ?? 'default'
  // Phi-3 used other names for LongRoPE.
  const type = parts.isPhi && ['su', 'yarn'].includes(stated) ? 'longrope' : stated
  const read = Object.hasOwn(ROPE_TYPES, type) ? ROPE_TYPES[type] : undefined
  if (read === undefined) {
    const known = Object.keys(ROPE_TYPES).join(', ')
    throw settings.refusal(`config.json: the rope type ${type} is not supported, but ${known} are`)
  }
  return { width: parts.width, ...read({ ...parts, settings }) }
}

/** The frequencies of each rope type by its settings, as in transformers. */
const ROPE_TYPES: Readonly<Record<string, (parts: RotaryParts) => Frequencies>> = {
  default: (parts) => ({ frequencies: plain(parts), factor: 1 }),
  linear: (parts) => {
    const scale = parts.settings.positive('factor')
    return { frequencies: plain(parts).map((frequency) => frequency / scale), factor: 1 }
  },
  llama3: (parts) => ({ frequencies: llama3(parts), factor: 1 }),
  yarn,
  longrope,
}

/** base^(-2i ÷ width) */
function plain({ base, width }: Pick<RotaryParts, 'base' | 'width'>): Float32Array {
  return Float32Array.from({ length: width / 2 }, (_, pair) => {
    return 1 / Math.fround(base ** Math.fround((2 * pair) / width))
  })
}

/** Low frequencies are divided by the factor, high ones are kept, those in between are blended. */
function llama3(parts: RotaryParts): Float32Array {
  const { settings } = parts
  const factor = settings.positive('factor')
  const low = settings.positive('low_freq_factor')
  const high = settings.positive('high_freq_factor')
  const original = originalPositions(parts)
  return plain(parts).map((frequency) => {
    const turns = (original * frequency) / (2 * Math.PI)
    if (turns > high) return frequency
    if (turns < low) return frequency / factor
    const smooth = (turns - low) / (high - low)
    return ((1 - smooth) * frequency) / factor + smooth * frequency
  })
}

/** YaRN: like llama3, with a linear ramp over the pairs and a factor for cosines and sines. */
function yarn(parts: RotaryParts): Frequencies {
  const { base, width, positions, settings } = parts
  const original = originalPositions(parts)
  const scale = settings.positive('factor', positions / original)
  const pairOf = (turns: number): number =>
    (width * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(base))
  const isWhole = settings.isOn('truncate', true)
  const first = pairOf(settings.findPositive('beta_fast') ?? 32)
  const last = pairOf(settings.findPositive('beta_slow') ?? 1)
  const from = Math.max(isWhole ? Math.floor(first) : first, 0)
  const to = Math.min(isWhole ? Math.ceil(last) : last, width - 1)
  const length = to === from ? 0.001 : to - from
  const frequencies = plain(parts).map((frequency, pair) => {
    const share = Math.min(Math.max((pair - from) / length, 0), 1)
    return (frequency / scale) * share + frequency * (1 - share)
  })
  const grow = (by = 1): number => (scale <= 1 ? 1 : 0.1 * by * Math.log(scale) + 1)
  const mscale = settings.findPositive('mscale')
  const all = settings.findPositive('mscale_all_dim')
  const usual = mscale !== undefined && all !== undefined ? grow(mscale) / grow(all) : grow()
  return { frequencies, factor: settings.findPositive('attention_factor') ?? usual }
}

/** LongRoPE: divisors of each pair, one list for short texts and one for long ones. */
function longrope(parts: RotaryParts): Frequencies {
  const { width, positions, settings } = parts
  const original = originalPositions(parts)
  const scale = settings.positive('factor', positions / original)
  const usual = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(original))
  const divided = (name: string): Float32Array => {
    const divisors = settings.numbers(name, width / 2)
    return plain(parts).map((frequency, pair) => frequency / (divisors[pair] as number))
  }
  return {
    frequencies: divided('short_factor'),
    factor: settings.findPositive('attention_factor') ?? usual,
    ...(positions > original && {
      long: { frequencies: divided('long_factor'), from: original },
    }),
  }
}

function originalPositions({ positions, settings }: RotaryParts): number {
  return settings.count('original_max_position_embeddings', {
    max: POSITIONS_MAX,
    fallback: positions,
  })
}

/** Positions of a table that are computed at a time. */
const PIECE_ROWS = 4096

/**
 * The cosines or sines of all positions, in ranges. With LongRoPE those of short texts come first,
 * followed by those of long ones. Angles have 32 bits, as in the models' own code.
 */
export function* rotationTable(
  { frequencies, factor, long }: Rotation,
  { positions, of }: { readonly positions: number; readonly of: (angle: number) => number },
): Generator<Float32Array> {
  yield* tablePieces(frequencies, { rows: long?.from ?? positions, of, factor })
  if (long !== undefined) yield* tablePieces(long.frequencies, { rows: positions, of, factor })
}

/** Rows of `rotationTable`. */
export function tableRows({ long }: Rotation, positions: number): number {
  return positions + (long?.from ?? 0)
}

function* tablePieces(
  frequencies: Float32Array,
  { rows, of, factor }: { rows: number; of: (angle: number) => number; factor: number },
): Generator<Float32Array> {
  const width = frequencies.length
  for (let first = 0; first < rows; first += PIECE_ROWS) {
    const piece = new Float32Array(Math.min(PIECE_ROWS, rows - first) * width)
    for (let at = 0; at < piece.length; at += 1) {
      const position = first + Math.floor(at / width)
      piece[at] = factor * of(Math.fround(position * (frequencies[at % width] as number)))
    }
    yield piece
  }
}
