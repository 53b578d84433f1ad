import { describe, expect, it } from 'vitest'

import { findLanguages, readTranslationRequest } from '#workers/text/languages.ts'

const NLLB = ['fra_Latn', 'ace_Arab', 'ace_Latn', 'arb_Arab', 'eng_Latn', 'zho_Hans', 'zho_Hant']
const M2M100 = ['__af__', '__fr__', '__zh__', '__ast__']
const MBART = ['ar_AR', 'en_XX', 'fr_XX', 'zh_CN']

function languagesOf(tokens: readonly string[], place: 'added' | 'config' = 'added') {
  const findTokenId = (token: string) =>
    tokens.includes(token) ? tokens.indexOf(token) : undefined
  const added = tokens.map((content, id) => ({ id, content, special: true }))
  return findLanguages(
    { added_tokens: place === 'added' ? [{ id: 99, content: '</s>' }, ...added] : [] },
    place === 'config' ? { additional_special_tokens: tokens } : {},
    findTokenId,
  )
}

it.each<[readonly string[], string, string]>([
  [NLLB, 'fra_Latn', 'fra_Latn'],
  [NLLB, 'fr', 'fra_Latn'],
  [NLLB, 'fra', 'fra_Latn'],
  [NLLB, ' french ', 'fra_Latn'],
  [NLLB, 'Français', 'fra_Latn'],
  [NLLB, 'Arabic', 'arb_Arab'],
  [NLLB, 'ace', 'ace_Latn'],
  [NLLB, 'Chinese', 'zho_Hans'],
  [NLLB, 'zh-Hant', 'zho_Hant'],
  [NLLB, 'Traditional Chinese', 'zho_Hant'],
  [M2M100, '__fr__', '__fr__'],
  [M2M100, 'fr', '__fr__'],
  [M2M100, 'Asturian', '__ast__'],
  [MBART, 'English', 'en_XX'],
  [MBART, 'fr', 'fr_XX'],
  [MBART, 'Chinese', 'zh_CN'],
])('among %j, %j is %s', (tokens, name, expected) => {
  expect(tokens[languagesOf(tokens)?.find(name) ?? -1]).toBe(expected)
})

it.each(['xx', '', 'Klingon', 'constructor', 'a'.repeat(1000), 'fr_'])(
  'does not know %j',
  (name) => {
    expect(languagesOf(NLLB)?.find(name)).toBeUndefined()
  },
)

it('reads languages from the configuration of the tokenizer, too', () => {
  const languages = languagesOf(M2M100, 'config')
  expect(languages?.codes).toEqual(['af', 'fr', 'zh', 'ast'])
  expect([0, 3, 4].map((tokenId) => languages?.isLanguage(tokenId))).toEqual([true, true, false])
})

it('reads the targets of a vocabulary, which the source begins with', () => {
  const words = ['</s>', '>>fra<<', 'x', '>>pt_br<<', '>>cmn_Hans<<']
  const languages = findLanguages(
    { model: { vocab: words.map((word) => [word, 0]) } },
    {},
    (token) => words.indexOf(token),
  )
  expect(languages?.place).toBe('source')
  expect(['fr', 'Portuguese', 'zh'].map((name) => languages?.find(name))).toEqual([1, 3, 4])
  expect(languagesOf(NLLB)?.place).toBe('answer')
})

it('finds no languages if tokens only look alike', () => {
  expect(languagesOf(['<s>', '</s>', '__other__', 'fra_Latn'])).toBeUndefined()
})

describe('an instruction', () => {
  it.each<[string, object | undefined]>([
    ['Translate to French', { target: 'French' }],
    ['translate into Brazilian Portuguese.', { target: 'Brazilian Portuguese' }],
    ['Please translate this to de:', { target: 'de' }],
    ['Translate the following text to zh-Hant', { target: 'zh-Hant' }],
    ['Translate from German to French', { source: 'German', target: 'French' }],
    ['translate  English\n to Romanian:', { source: 'English', target: 'Romanian' }],
    [
      'Translate this sentence from fra_Latn into English',
      { source: 'fra_Latn', target: 'English' },
    ],
    ['Make it shorter', undefined],
    ['Translate', undefined],
    [`Translate to ${'a'.repeat(300)}`, undefined],
  ])('%j asks for %j', (instruction, expected) => {
    expect(readTranslationRequest(instruction)).toEqual(expected)
  })
})
