import { isRecord } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/** The phonemes of a text in IPA, with its punctuation. */
export type Phonemize = (text: string, language: string) => Promise<string>

// Installed by the operator: it contains espeak-ng, whose licence is the GPL (decision 0180).
const PACKAGE = 'phonemizer'
const PUNCTUATION = /(\s*[;:,.!?¡¿—…"«»“”(){}[\]]+\s*)+/gu

/**
 * Opens the optional package that converts letters to phonemes. Throws `ModelLoadError` without it.
 */
export async function openPhonemizer(modelFile: string): Promise<Phonemize> {
  const module: unknown = await import(PACKAGE).catch(() => undefined)
  const run = isRecord(module) ? module.phonemize : undefined
  if (typeof run !== 'function') {
    throw new ModelLoadError(
      modelFile,
      `this model reads phonemes: run \`npm install ${PACKAGE}\` where the worker is installed`,
    )
  }
  const speak = async (text: string, language: string): Promise<string> => {
    const lines: unknown = await run(text, language)
    return Array.isArray(lines) ? lines.join(' ') : ''
  }
  return (text, language) => keepPunctuation(text, (words) => speak(words, language))
}

/** espeak-ng drops punctuation, which voices need for their pauses. */
async function keepPunctuation(
  text: string,
  speak: (words: string) => Promise<string>,
): Promise<string> {
  let phonemes = ''
  let at = 0
  for (const mark of text.matchAll(PUNCTUATION)) {
    const words = text.slice(at, mark.index)
    phonemes += (words.trim() === '' ? '' : await speak(words)) + mark[0]
    at = mark.index + mark[0].length
  }
  const rest = text.slice(at)
  return (phonemes + (rest.trim() === '' ? '' : await speak(rest))).trim()
}
