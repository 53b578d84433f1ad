import { describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'

import { encode, runJob, text } from './completion-job.ts'
import { babble, scriptedEngine, VOCABULARY, writes } from './scripted-engine.ts'

const PROMPT = [5, 6, 7]
const prompts = [{ form: 'tokenIds' as const, tokenIds: PROMPT }]

describe('allowed token ids', () => {
  it('are the only ones in an answer', async () => {
    const allowedTokenIds = [40, 41, 42]
    const { result } = await runJob(
      { prompts, tokenRules: { allowedTokenIds } },
      { engine: scriptedEngine(babble) },
    )
    const { tokenIds } = defined(result.candidates[0])
    expect(tokenIds.length).toBeGreaterThan(0)
    expect(tokenIds.filter((id) => !allowedTokenIds.includes(id))).toEqual([])
  })

  it('answer at least one of them', async () => {
    const [endToken = 0] = text.endTokenIds
    const { result } = await runJob(
      { prompts, tokenRules: { allowedTokenIds: [40] } },
      { engine: scriptedEngine(writes([], PROMPT.length, endToken)) },
    )
    expect(result.candidates[0]).toMatchObject({ tokenIds: [40], finishReason: 'stop' })
  })

  it('still let it end', async () => {
    const [endToken = 0] = text.endTokenIds
    const answer = writes([40, 50], PROMPT.length, endToken)
    const { result } = await runJob(
      { prompts, tokenRules: { allowedTokenIds: [40] } },
      { engine: scriptedEngine(answer) },
    )
    expect(result.candidates[0]?.finishReason).toBe('stop')
  })

  it('beyond the vocabulary are refused', async () => {
    const refused = runJob(
      { prompts, tokenRules: { allowedTokenIds: [VOCABULARY] } },
      { engine: scriptedEngine(babble) },
    )
    await expect(refused).rejects.toMatchObject({ param: 'allowed_token_ids' })
  })
})

it('never writes a bad word, but may write its first tokens if others follow', async () => {
  const word = encode('abc')
  const answer = [...word, ...encode('abd')]
  const run = async (badWords: readonly string[]) => {
    const engine = scriptedEngine(writes(answer, PROMPT.length))
    const { result } = await runJob({ prompts, tokenRules: { badWords } }, { engine })
    return result.candidates[0]?.text
  }
  expect(await run([])).toContain('abc')
  expect(await run(['abc'])).not.toContain('abc')
  expect(await run(['abc'])).toContain('abd')
})

it('shares no cache between salts', async () => {
  const engine = scriptedEngine(babble)
  for (const cacheSalt of ['a', 'b']) await runJob({ prompts, cacheSalt }, { engine })
  await runJob({ prompts }, { engine })
  const scopes = engine.requests.map(({ cacheScope }) => cacheScope)
  expect(new Set(scopes).size).toBe(3)
})

it('returns the tokens of prompts at the start of a stream, else with the result', async () => {
  const engine = scriptedEngine(babble)
  const whole = await runJob({ prompts, returnsPromptTokens: true }, { engine })
  expect(whole.result.promptTokenIds).toEqual([PROMPT])
  const streamed = await runJob({ prompts, returnsPromptTokens: true, stream: true }, { engine })
  expect([streamed.promptTokenIds, streamed.result.promptTokenIds]).toEqual([[PROMPT], undefined])
})
