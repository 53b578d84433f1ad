import { failure } from '#shared/errors.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { SpeechTask } from './recognizer.ts'
import type { WhisperGeneration } from './whisper-files.ts'

/** The special tokens. */
export interface WhisperTokens {
  readonly startOfTranscript: number
  readonly endOfText: number
  readonly startOfPrevious: number | undefined
  readonly noSpeech: number | undefined
  readonly noTimestamps: number
  /** The token of 0.00 s; all timestamps follow it in order. */
  readonly firstTimestamp: number
  /** Absent in some small models. */
  readonly hasTimestamps: boolean
  readonly tasks: Readonly<Record<'transcribe' | 'translate', number | undefined>>
  /** ISO 639-1 code to token; empty for English-only models. */
  readonly languages: ReadonlyMap<string, number>
  /** Special tokens that an answer never contains, except timestamps. */
  readonly neverAnswered: readonly number[]
}

/** Finds the special tokens by their spelling. Throws when the vocabulary is not Whisper's. */
export function findWhisperTokens(
  tokenizer: Tokenizer,
  tokenizerJson: object,
  { isMultilingual, vocabularySize }: WhisperGeneration,
): WhisperTokens {
  const find = (name: string) => tokenizer.findTokenId(`<|${name}|>`)
  const get = (name: string) => {
    const id = find(name)
    if (id === undefined) throw new Error(`the vocabulary has no <|${name}|>`)
    return id
  }
  const noTimestamps = get('notimestamps')
  const markers = {
    startOfTranscript: get('startoftranscript'),
    startOfPrevious: find('startofprev'),
    noSpeech: find('nospeech') ?? find('nocaptions'),
    noTimestamps,
  }
  const tasks = { transcribe: find('transcribe'), translate: find('translate') }
  return {
    ...markers,
    endOfText: get('endoftext'),
    firstTimestamp: find('0.00') ?? noTimestamps + 1,
    hasTimestamps: vocabularySize > noTimestamps + 1,
    tasks,
    languages: isMultilingual ? languagesOf(tokenizerJson) : new Map(),
    neverAnswered: [...Object.values(markers), ...Object.values(tasks), find('startoflm')].filter(
      (id) => id !== undefined,
    ),
  }
}

function languagesOf(tokenizerJson: object): Map<string, number> {
  const { added_tokens: added = [] } = tokenizerJson as {
    added_tokens?: readonly { id: number; content: string }[]
  }
  return new Map(
    added.flatMap(({ id, content }) => {
      const code = /^<\|([a-z]{2,3}|jw)\|>$/.exec(content)?.[1]
      return code === undefined ? [] : [[code, id] as const]
    }),
  )
}

/** Refuses a language or task that the model does not support. */
export function checkSpeechTask(tokens: WhisperTokens, { task, language }: SpeechTask): void {
  const isEnglishOnly = tokens.languages.size === 0
  if (isEnglishOnly && task === 'translate') {
    throw failure.invalidRequest('This model only transcribes English; it cannot translate.', {
      param: 'model',
    })
  }
  if (language === null) return
  if (isEnglishOnly ? language === 'en' : findLanguage(tokens, language) !== undefined) return
  throw failure.invalidRequest(`The language '${language}' is not supported by this model.`, {
    param: 'language',
    code: 'unsupported_language',
  })
}

/** The prompt of an answer: start, language, task. English-only models use the start only. */
export function startTokens(
  tokens: WhisperTokens,
  task: SpeechTask['task'],
  language: string,
): number[] {
  const isEnglishOnly = tokens.languages.size === 0
  return [
    tokens.startOfTranscript,
    isEnglishOnly ? undefined : findLanguage(tokens, language),
    isEnglishOnly ? undefined : tokens.tasks[task],
    tokens.hasTimestamps ? undefined : tokens.noTimestamps,
  ].filter((id) => id !== undefined)
}

/** Whisper uses the withdrawn code of Javanese. */
/** The token of a language, by its ISO 639-1 code. */
export function findLanguage({ languages }: WhisperTokens, code: string): number | undefined {
  return languages.get(code) ?? (code === 'jv' ? languages.get('jw') : undefined)
}
