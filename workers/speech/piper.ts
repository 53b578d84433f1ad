import { basename, dirname } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { countIn, findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { Phonemize } from './phonemes.ts'
import { runVoice, type Voices, type VoicesTools } from './voices.ts'

/** The ids of each phoneme, or of each letter of voices that read text. */
type PhonemeIds = ReadonlyMap<string, readonly number[]>

interface PiperFiles {
  readonly sampleRate: number
  readonly speakers: ReadonlyMap<string, number>
  readonly ids: PhonemeIds
  /** The language of espeak-ng; absent for voices that read letters. */
  readonly language?: string
  readonly noiseScale: number
  readonly lengthScale: number
  readonly noiseWidth: number
}

type Json = Readonly<Record<string, unknown>>

const SAMPLE_RATE_MAX = 192_000
const MARKS = { pad: '_', start: '^', end: '$' }

/** The settings of a Piper voice: `<graph>.onnx.json`, or undefined where there is none. */
export async function findPiperConfig(modelFile: string): Promise<Json | undefined> {
  return await findJson(dirname(modelFile), `${basename(modelFile)}.json`)
}

/** Opens a Piper voice. Throws `ModelLoadError`. */
export async function openPiper(
  { runtime, session, phonemizer }: VoicesTools,
  config: Json,
): Promise<Voices> {
  const files = readPiper(session.file, config)
  const { speakers, sampleRate, ids, language } = files
  const phonemize = language === undefined ? lettersOf : await phonemizer(session.file)
  const hasSpeaker = session.inputs.some(({ name }) => name === 'sid')
  return {
    modelFile: session.file,
    sampleRate,
    names: [...speakers.keys()],
    hasSpeed: true,
    async encode(sentence) {
      return idsOf(ids, await phonemize(sentence, language ?? ''))
    },
    speak({ tokenIds, voice, speed }, signal) {
      const { noiseScale, lengthScale, noiseWidth } = files
      const scales = Float32Array.of(noiseScale, lengthScale / speed, noiseWidth)
      const speaker = BigInt64Array.of(BigInt(speakers.get(voice) ?? 0))
      const feeds = {
        input: runtime.tensor('int64', BigInt64Array.from(tokenIds, BigInt), [1, tokenIds.length]),
        input_lengths: runtime.tensor('int64', BigInt64Array.of(BigInt(tokenIds.length)), [1]),
        scales: runtime.tensor('float32', scales, [3]),
        ...(hasSpeaker && { sid: runtime.tensor('int64', speaker, [1]) }),
      }
      return runVoice(session, feeds, signal)
    },
    close: () => session.close(),
  }
}

function readPiper(file: string, config: Json): PiperFiles {
  const part = (name: string): Json => (isRecord(config[name]) ? config[name] : {})
  const type = config.phoneme_type ?? 'espeak'
  if (type !== 'espeak' && type !== 'text') {
    throw new ModelLoadError(
      file,
      `phoneme_type ${String(type)} is not supported, only espeak and text`,
    )
  }
  const inference = part('inference')
  const scale = (name: string, fallback: number): number => {
    const value = inference[name] ?? fallback
    if (typeof value === 'number' && value >= 0 && value <= 10) return value
    throw new ModelLoadError(file, `inference.${name} must be a number from 0 to 10`)
  }
  const language = part('espeak').voice
  return {
    sampleRate: countIn(file, part('audio'), 'sample_rate', {
      fallback: 22_050,
      min: 8000,
      max: SAMPLE_RATE_MAX,
    }),
    speakers: speakersOf(file, part('speaker_id_map')),
    ids: phonemeIdsOf(file, part('phoneme_id_map')),
    ...(type === 'espeak' && { language: typeof language === 'string' ? language : 'en-us' }),
    noiseScale: scale('noise_scale', 0.667),
    lengthScale: scale('length_scale', 1),
    noiseWidth: scale('noise_w', 0.8),
  }
}

function speakersOf(file: string, map: Json): ReadonlyMap<string, number> {
  const entries = Object.entries(map)
  if (entries.length === 0) return new Map([['default', 0]])
  return new Map(
    entries.map(([name, id]) => {
      if (Number.isInteger(id) && (id as number) >= 0) return [name, id as number]
      throw new ModelLoadError(file, `speaker_id_map.${name} is not a speaker id`)
    }),
  )
}

function phonemeIdsOf(file: string, map: Json): PhonemeIds {
  const ids = new Map<string, readonly number[]>()
  for (const [phoneme, value] of Object.entries(map)) {
    if (!Array.isArray(value) || !value.every((id) => Number.isInteger(id) && id >= 0)) {
      throw new ModelLoadError(file, `phoneme_id_map.${phoneme} is not a list of ids`)
    }
    ids.set(phoneme, value)
  }
  const missing = Object.values(MARKS).find((mark) => !ids.has(mark))
  if (missing === undefined) return ids
  throw new ModelLoadError(file, `phoneme_id_map has no "${missing}"`)
}

/** Start and pad, each known phoneme followed by a pad, end. Unknown phonemes are skipped. */
function idsOf(ids: PhonemeIds, phonemes: string): readonly number[] {
  const of = (mark: string): readonly number[] => ids.get(mark) ?? []
  const spoken = [...phonemes].flatMap((phoneme) => {
    const known = ids.get(phoneme)
    return known === undefined ? [] : [...known, ...of(MARKS.pad)]
  })
  if (spoken.length === 0) return []
  return [...of(MARKS.start), ...of(MARKS.pad), ...spoken, ...of(MARKS.end)]
}

const lettersOf: Phonemize = async (text) => text.toLowerCase().normalize('NFD')
