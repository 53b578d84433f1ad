import { expect, it } from 'vitest'

import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { prepareSource } from '#workers/processors/source-prompt.ts'
import { findLanguages } from '#workers/text/languages.ts'

import { text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const TARGETS = ['>>fra<<', '>>deu<<']
const languages = findLanguages(
  { model: { vocab: TARGETS.map((token) => [token, 0]) } },
  {},
  (token) => 300 + TARGETS.indexOf(token),
)
const NO_RULES = { bannedSequences: [], bannedStarts: [], repeatedSequenceLength: 0 }
const generation = { ...text.generation, decoderStartTokenId: 7 }
const model = createCompletionModel(
  { ...scriptedEngine(babble, 16), decoderLength: 16 },
  {
    ...text,
    generation: { ...NO_RULES, ...generation },
    ...(languages && { languages }),
  },
)
const PROMPT = { form: 'text', text: 'The quick' } as const
const ids = text.tokenizer.encode(PROMPT.text, { addSpecialTokens: true })

it('begins the source with its target if the model reads it there', async () => {
  const asked = { maxTokens: null, languages: { target: 'German' } }
  expect(await prepareSource(model, PROMPT, asked)).toMatchObject({
    tokenIds: [301, ...ids],
    source: { length: ids.length + 1, startTokenIds: [7] },
    maxNewTokens: 15,
    continuesText: false,
  })
  const edit = { form: 'edit', input: PROMPT.text, instruction: 'Translate to French' } as const
  const { tokenIds } = await prepareSource(model, edit, { maxTokens: null })
  expect(tokenIds).toEqual([300, ...ids])
})

it('accepts a source that begins with its target by itself', async () => {
  const prompt = { form: 'tokenIds', tokenIds: [300, ...ids] } as const
  expect(await prepareSource(model, prompt, { maxTokens: null })).toMatchObject({
    tokenIds: [300, ...ids],
    source: { length: ids.length + 1, startTokenIds: [7] },
  })
})

it('begins answers with the target alone if the decoder starts with a language', async () => {
  const codes = ['fr_XX', 'de_DE']
  const known = findLanguages(
    { added_tokens: codes.map((content) => ({ content })), model: { vocab: [] } },
    {},
    (token) => 300 + codes.indexOf(token),
  )
  const mbart = createCompletionModel(
    { ...scriptedEngine(babble, 16), decoderLength: 16 },
    {
      ...text,
      generation: { ...NO_RULES, decoderStartTokenId: 301 },
      ...(known && { languages: known }),
    },
  )
  for (const [target, start] of [
    [undefined, 301],
    ['French', 300],
  ] as const) {
    const asked = { maxTokens: null, languages: target === undefined ? {} : { target } }
    const { source } = await prepareSource(mbart, PROMPT, asked)
    expect(source?.startTokenIds).toEqual([start])
  }
})

it.each<[object, object]>([
  [
    { source: 'en', target: 'fr' },
    { param: 'source_language', code: 'unsupported_parameter' },
  ],
  [{}, { param: 'target_language', code: 'missing_required_parameter' }],
  [{ target: 'English' }, { param: 'target_language', code: 'invalid_value' }],
])('refuses the languages %j there', async (given, expected) => {
  const preparing = prepareSource(model, PROMPT, { maxTokens: 1, languages: given })
  await expect(preparing).rejects.toMatchObject(expected)
})

it('counts the target among the tokens of a source', async () => {
  const full = { form: 'tokenIds', tokenIds: Array.from({ length: 16 }, () => 5) } as const
  const preparing = prepareSource(model, full, { maxTokens: 1, languages: { target: 'fr' } })
  await expect(preparing).rejects.toMatchObject({
    code: 'context_length_exceeded',
    message: expect.stringContaining('(17 in your prompt; 0 for the completion)'),
  })
})

it('refuses a model whose files do not name the first token of an answer', () => {
  const engine = { ...scriptedEngine(babble, 16), decoderLength: 16 }
  const { decoderStartTokenId: _, ...rest } = generation
  const silent = { ...NO_RULES, ...rest }
  expect(() => createCompletionModel(engine, { ...text, generation: silent })).toThrow(
    'decoder_start_token_id',
  )
})
