import { failure } from '#shared/errors.ts'
import { metadataOf } from '#workers/graph/metadata.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { readVocabulary } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { Phonemize } from './phonemes.ts'
import { readStyles, STYLE_SIZE } from './styles.ts'
import { runVoice, type Voices, type VoicesTools } from './voices.ts'

const SAMPLE_RATE = 24_000
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

/** The elements of an input by its type, which differs between exports. */
const ELEMENTS = {
  int64: (values: readonly number[]) => BigInt64Array.from(values, BigInt),
  int32: (values: readonly number[]) => Int32Array.from(values),
  float32: (values: readonly number[]) => Float32Array.from(values),
}

interface KokoroInput {
  readonly name: string
  readonly type: keyof typeof ELEMENTS
}

/** The inputs of a graph by meaning. */
interface KokoroInputs {
  readonly tokens: KokoroInput
  readonly style: KokoroInput
  readonly speed: KokoroInput
}

/** The inputs of a Kokoro model; undefined for other models. Throws `ModelLoadError`. */
export function findKokoroInputs({ file, inputs }: ModelSession): KokoroInputs | undefined {
  const find = (...names: readonly string[]) => inputs.find(({ name }) => names.includes(name))
  const [tokens, style, speed] = [find('input_ids', 'tokens'), find('style'), find('speed')]
  if (tokens === undefined || style === undefined || speed === undefined) return undefined
  const typed = ({ name, type }: TensorSpec, types: readonly KokoroInput['type'][]) => {
    const found = types.find((known) => known === type)
    if (found !== undefined) return { name, type: found }
    const expected = types.join(' or ')
    throw new ModelLoadError(file, `the input ${name} is ${type ?? 'other'}, expected ${expected}`)
  }
  return {
    tokens: typed(tokens, ['int64', 'int32']),
    style: typed(style, ['float32']),
    speed: typed(speed, ['float32', 'int32', 'int64']),
  }
}

/** Opens a Kokoro model with the styles of its voices. Throws `ModelLoadError`. */
export async function openKokoro(
  { runtime, session, phonemizer }: VoicesTools,
  inputs: KokoroInputs,
  folder: string,
): Promise<Voices> {
  const vocabulary = await readVocabulary(folder)
  const styles = await readStyles(folder, await namesOfVoices(session.file))
  const phonemize = await phonemizer(session.file)
  return {
    modelFile: session.file,
    sampleRate: SAMPLE_RATE,
    // An integer speed has no value between the normal speed and twice that.
    hasSpeed: inputs.speed.type === 'float32',
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
        ...feed(runtime, inputs.tokens, tokenIds, [1, tokenIds.length]),
        ...feed(runtime, inputs.style, [...style], [1, STYLE_SIZE]),
        ...feed(runtime, inputs.speed, [speed], [1]),
      }
      return runVoice(session, feeds, signal)
    },
    close: () => session.close(),
  }
}

/** Reads the voice names in the metadata of a sherpa-onnx graph; empty for other graphs. */
async function namesOfVoices(file: string): Promise<readonly string[]> {
  const names = metadataOf(await readModelFile(file)).get('speaker_names') ?? ''
  return names.split(',').filter((name) => name !== '')
}

function feed(
  runtime: Runtime,
  { name, type }: KokoroInput,
  values: readonly number[],
  dims: readonly number[],
): Readonly<Record<string, Tensor>> {
  return { [name]: runtime.tensor(type, ELEMENTS[type](values), dims) }
}

async function phonemesOf(phonemize: Phonemize, text: string, voice: string): Promise<string> {
  const language = LANGUAGES[voice.charAt(0)]
  if (language === undefined) {
    throw failure.invalidRequest(
      `Invalid value for 'voice': ${voice} speaks a language whose phonemes this server lacks. Supported first letters: ${Object.keys(LANGUAGES).join(', ')}.`,
      { param: 'voice', code: 'invalid_value' },
    )
  }
  return adaptPhonemes(await phonemize(text, language))
}

/** The model was trained on phonemes that differ from those of espeak-ng. */
function adaptPhonemes(phonemes: string): string {
  return phonemes
    .replaceAll('ʲ', 'j')
    .replaceAll('r', 'ɹ')
    .replaceAll('x', 'k')
    .replaceAll('ɬ', 'l')
    .replaceAll(/(?<=[a-zɹː])(?=hˈʌndɹɪd)/g, ' ')
    .replaceAll(/ z(?=[;:,.!?¡¿—…"«»“” ]|$)/g, 'z')
}
