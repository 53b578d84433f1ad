import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { failure } from '#shared/errors.ts'
import { readFileWithin } from '#shared/read-file.ts'
import { readVocabulary } from '#workers/models/folder-json.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { Phonemize } from './phonemes.ts'
import { runVoice, type Voices, type VoicesTools } from './voices.ts'

const SAMPLE_RATE = 24_000
const VOICE_BYTES_MAX = 16 * 1024 ** 2
const VOICES_MAX = 200
/** Floats of a style; each voice has one for each number of tokens. */
const STYLE_SIZE = 256
/** The longest sequence of phonemes that the model reads. */
const PHONEMES_MAX = 510
const BOUNDARY_ID = 0
// The first letter of a voice's name is its language.
const LANGUAGES: Readonly<Record<string, string>> = {
  a: 'en-us',
  b: 'en',
  e: 'es',
  f: 'fr',
  h: 'hi',
  i: 'it',
  p: 'pt-br',
}

/** Opens a Kokoro model with the styles in `voices/`. Throws `ModelLoadError`. */
export async function openKokoro(
  { runtime, session, phonemizer }: VoicesTools,
  folder: string,
): Promise<Voices> {
  const vocabulary = await readVocabulary(folder)
  const styles = await readStyles(folder)
  const phonemize = await phonemizer(session.file)
  return {
    modelFile: session.file,
    sampleRate: SAMPLE_RATE,
    hasSpeed: true,
    names: [...styles.keys()],
    async encode(sentence, voice) {
      const phonemes = await phonemesOf(phonemize, sentence, voice)
      const ids = [...phonemes].flatMap((phoneme) => vocabulary.get(phoneme) ?? [])
      if (ids.length === 0) return []
      return [BOUNDARY_ID, ...ids.slice(0, PHONEMES_MAX), BOUNDARY_ID]
    },
    speak({ tokenIds, voice, speed }, signal) {
      const all = styles.get(voice) ?? new Float32Array(STYLE_SIZE)
      const rows = all.length / STYLE_SIZE
      const row = Math.min(tokenIds.length - 2, rows - 1)
      const style = all.slice(row * STYLE_SIZE, (row + 1) * STYLE_SIZE)
      const feeds = {
        input_ids: runtime.tensor('int64', BigInt64Array.from(tokenIds, BigInt), [
          1,
          tokenIds.length,
        ]),
        style: runtime.tensor('float32', style, [1, STYLE_SIZE]),
        speed: runtime.tensor('float32', Float32Array.of(speed), [1]),
      }
      return runVoice(session, feeds, signal)
    },
    close: () => session.close(),
  }
}

async function readStyles(folder: string): Promise<ReadonlyMap<string, Float32Array>> {
  const files = (await readdir(join(folder, 'voices')).catch(() => [])).filter((name) =>
    name.endsWith('.bin'),
  )
  if (files.length === 0 || files.length > VOICES_MAX) {
    throw new ModelLoadError(folder, `voices/ must have 1 to ${VOICES_MAX} files *.bin`)
  }
  const styles = new Map<string, Float32Array>()
  for (const file of files.toSorted()) {
    const bytes = await readFileWithin(await pathInside(folder, `voices/${file}`), VOICE_BYTES_MAX)
    if (bytes.length === 0 || bytes.length % (4 * STYLE_SIZE) !== 0) {
      throw new ModelLoadError(folder, `voices/${file} is not a list of ${STYLE_SIZE} floats each`)
    }
    styles.set(file.slice(0, -'.bin'.length), new Float32Array(Uint8Array.from(bytes).buffer))
  }
  return styles
}

async function phonemesOf(phonemize: Phonemize, text: string, voice: string): Promise<string> {
  const language = LANGUAGES[voice.charAt(0)]
  if (language === undefined) {
    throw failure.invalidRequest(
      `Invalid value for 'voice': ${voice} speaks a language without phonemes here. Supported first letters: ${Object.keys(LANGUAGES).join(', ')}.`,
      { param: 'voice', code: 'invalid_value' },
    )
  }
  return adaptPhonemes(await phonemize(text, language))
}

/** The model was trained on phonemes of another source than espeak-ng. */
function adaptPhonemes(phonemes: string): string {
  return phonemes
    .replaceAll('ʲ', 'j')
    .replaceAll('r', 'ɹ')
    .replaceAll('x', 'k')
    .replaceAll('ɬ', 'l')
    .replaceAll(/(?<=[a-zɹː])(?=hˈʌndɹɪd)/g, ' ')
    .replaceAll(/ z(?=[;:,.!?¡¿—…"«»“” ]|$)/g, 'z')
}
