import { countIn, findJson, readJson, readVocabulary } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { runVoice, type Voices, type VoicesTools } from './voices.ts'

const SAMPLE_RATE_MAX = 192_000
const SPEAKERS_MAX = 10_000
const BLANK_ID = 0

interface Letters {
  readonly vocabulary: ReadonlyMap<string, number>
  readonly hasBlanks: boolean
  readonly isNormalized: boolean
}

/** Opens a VITS model of the hub (MMS) that reads letters. Throws `ModelLoadError`. */
export async function openVits(
  { runtime, session }: Omit<VoicesTools, 'phonemizer'>,
  folder: string,
): Promise<Voices> {
  const config = await readJson(folder, 'config.json')
  const letters = await readLetters(folder)
  const count = (name: string, fallback: number, max: number): number =>
    countIn(folder, config, name, { fallback, max })
  const speakers = count('num_speakers', 1, SPEAKERS_MAX)
  const hasSpeaker = session.inputs.some(({ name }) => name === 'speaker_id')
  const names = Array.from({ length: hasSpeaker ? speakers : 1 }, (_, id) => `speaker-${id}`)
  return {
    modelFile: session.file,
    names,
    hasSpeed: false,
    sampleRate: count('sampling_rate', 16_000, SAMPLE_RATE_MAX),
    async encode(sentence) {
      return encodeLetters(letters, sentence)
    },
    speak({ tokenIds, voice }, signal) {
      const dims = [1, tokenIds.length]
      const speaker = BigInt64Array.of(BigInt(names.indexOf(voice)))
      const feeds = {
        input_ids: runtime.tensor('int64', BigInt64Array.from(tokenIds, BigInt), dims),
        attention_mask: runtime.tensor('int64', new BigInt64Array(tokenIds.length).fill(1n), dims),
        ...(hasSpeaker && { speaker_id: runtime.tensor('int64', speaker, [1]) }),
      }
      return runVoice(session, feeds, signal)
    },
    close: () => session.close(),
  }
}

async function readLetters(folder: string): Promise<Letters> {
  const settings = (await findJson(folder, 'tokenizer_config.json')) ?? {}
  for (const name of ['phonemize', 'is_uroman']) {
    if (settings[name] !== true) continue
    const reason = name === 'phonemize' ? 'phonemes' : 'text in Latin letters (uroman)'
    throw new ModelLoadError(folder, `this VITS reads ${reason}, which is not supported`)
  }
  const vocabulary = await readVocabulary(folder)
  return {
    vocabulary,
    hasBlanks: settings.add_blank !== false,
    isNormalized: settings.normalize !== false,
  }
}

/** As in `VitsTokenizer` of transformers: unknown characters are skipped. */
function encodeLetters(
  { vocabulary, hasBlanks, isNormalized }: Letters,
  text: string,
): readonly number[] {
  const characters = [...text].map((character) =>
    isNormalized && !vocabulary.has(character) ? character.toLowerCase() : character,
  )
  const known = characters
    .flatMap((character) => [...character])
    .filter((character) => vocabulary.has(character))
    .join('')
    .trim()
  const ids = [...known].map((character) => vocabulary.get(character) ?? BLANK_ID)
  if (ids.length === 0) return []
  return hasBlanks ? [BLANK_ID, ...ids.flatMap((id) => [id, BLANK_ID])] : ids
}
