import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, afterEach, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { defined } from '#shared/json.ts'
import { generate, greedy, MODELS } from '#test/unit/workers/engine/generate.ts'
import { runJob } from '#test/unit/workers/processors/completion-job.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { readGenerationRules } from '#workers/text/generation-rules.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

/** Outputs of transformers for a few texts, recorded by test/fixtures/build-models.py. */
interface Golden {
  /** The language of the answers, where the model knows several. */
  readonly target: string | null
  /** The tokens that the decoder reads before an answer. */
  readonly start: readonly number[]
  /** Tokens of an answer after which `logits` were taken. */
  readonly rows: readonly number[]
  readonly cases: readonly {
    readonly text: string
    readonly ids: readonly number[]
    readonly greedy: readonly number[]
    readonly logits: readonly (readonly number[])[]
  }[]
}

const runtime = openRuntime()
const opened: TextEngine[] = []
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close()
})
afterAll(() => runtime.close())

async function open(name: string, options: { readonly onnxFile?: string } = {}) {
  const folder = join(MODELS, name)
  const engine = await openTextEngine({ runtime, folder, slots: 4, intraOpThreads: 1, ...options })
  opened.push(engine)
  const text = await loadTextModel(folder, systemClock)
  const golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as Golden
  return { engine, text, golden }
}

const asText = (text: string) => ({ form: 'text', text }) as const

/** The fields of a job that asks for the golden answers. */
function asked({ target, cases }: Golden) {
  const maxTokens = defined(cases[0]).greedy.length
  return { maxTokens, ...(target !== null && { languages: { target } }) }
}

describe.each(['t5', 'bart', 'marian', 'nllb'])('%s', (name) => {
  it('reads texts and gives the logits of the reference', async () => {
    const { engine, text, golden } = await open(name)
    for (const { text: source, ids, greedy: answer, logits } of golden.cases) {
      expect(text.tokenizer.encode(source, { addSpecialTokens: true })).toEqual(ids)
      const rows: number[][] = []
      await generate(engine, {
        promptTokenIds: [...ids, ...answer],
        source: { length: ids.length, startTokenIds: golden.start },
        promptLogitsFrom: ids.length - 1,
        maxNewTokens: 1,
        sampler: greedy,
        onPromptLogits: (_position, row) => rows.push(Array.from(row)),
      })
      expect(rows).toHaveLength(answer.length + 1)
      for (const [index, row] of golden.rows.entries()) {
        const expected = defined(logits[index])
        const distances = defined(rows[row]).map((value, id) =>
          Math.abs(value - defined(expected[id])),
        )
        expect(Math.max(...distances)).toBeLessThan(5e-4)
      }
    }
  })

  it('answers alike alone, beside texts of other lengths and after a cancelled one', async () => {
    const { engine, text, golden } = await open(name)
    const expected = golden.cases.map(({ greedy: answer }) => answer)
    const fields = asked(golden)
    for (const [index, { text: source, ids }] of golden.cases.entries()) {
      const alone = await runJob({ ...fields, prompts: [asText(source)] }, { engine, text })
      expect(alone.result.candidates[0]?.tokenIds).toEqual(expected[index])
      expect(alone.usage).toEqual({
        promptTokens: ids.length,
        completionTokens: defined(expected[index]).length,
        cachedTokens: 0,
      })
    }
    const prompts = golden.cases.map(({ text: source }) => asText(source))
    const together = () => runJob({ ...fields, prompts }, { engine, text })
    expect((await together()).result.candidates.map(({ tokenIds }) => tokenIds)).toEqual(expected)
    const leaving = new AbortController()
    const cancelled = engine.run(
      {
        promptTokenIds: defined(golden.cases[2]).ids,
        source: { length: defined(golden.cases[2]).ids.length, startTokenIds: golden.start },
        generatedTokenIds: [],
        maxNewTokens: 40,
        sampler: greedy,
        endTokenIds: new Set(),
        cacheScope: '',
        onToken: () => {
          leaving.abort()
          return true
        },
      },
      { signal: leaving.signal },
    )
    const [outcome, beside] = await Promise.all([
      cancelled.catch((error: Error) => error.name),
      together(),
    ])
    expect(outcome).toBe('CancelledError')
    expect(beside.result.candidates.map(({ tokenIds }) => tokenIds)).toEqual(expected)
    expect(engine.stats()).toMatchObject({ active: 0, waiting: 0 })
  })

  it('continues an answer that another worker began', async () => {
    const { engine, text, golden } = await open(name)
    const { text: source, greedy: answer } = defined(golden.cases[0])
    const resume = [{ index: 0, tokenIds: answer.slice(0, 5) }]
    const job = { ...asked(golden), prompts: [asText(source)] }
    for (const logprobs of [null, 2]) {
      const whole = await runJob({ ...job, logprobs }, { engine, text })
      const resumed = await runJob({ ...job, logprobs, resume }, { engine, text })
      expect(resumed.result.candidates[0]?.tokenIds).toEqual(answer)
      expect(resumed.result.candidates[0]?.text).toBe(whole.result.candidates[0]?.text)
      const scoresOf = ({ result }: typeof whole) =>
        result.candidates[0]?.logprobs?.map(({ logprob }) => Number(logprob?.toFixed(3)))
      expect(scoresOf(resumed)).toEqual(scoresOf(whole))
    }
  })
})

it('bounds the answer by the positions of the decoder', async () => {
  const { engine, text, golden } = await open('t5')
  const prompts = [asText('In winter the water is cold')]
  const { result } = await runJob(
    { ...asked(golden), prompts, maxTokens: null, ending: { ignoresEndOfText: true } },
    { engine, text },
  )
  expect(result.candidates[0]?.tokenIds).toHaveLength(63)
  expect(result.candidates[0]?.finishReason).toBe('length')
})

it('refuses a text beyond the positions of the encoder', async () => {
  const { engine, text } = await open('bart')
  const prompts = [asText('cold water '.repeat(60))]
  await expect(runJob({ prompts }, { engine, text })).rejects.toMatchObject({
    kind: 'invalidRequest',
    code: 'context_length_exceeded',
    param: 'prompt',
    message: expect.stringContaining("This model's maximum context length is 64 tokens"),
  })
})

it('never writes the tokens that generation_config.json suppresses', async () => {
  const { engine, text, golden } = await open('t5')
  const { text: source, greedy: expected } = defined(golden.cases[0])
  const start = defined(golden.start[0])
  const answer = async (rules: object) => {
    const generation = readGenerationRules([{ decoder_start_token_id: start, ...rules }])
    const job = { ...asked(golden), prompts: [asText(source)] }
    const { result } = await runJob(job, { engine, text: { ...text, generation } })
    return defined(result.candidates[0]).tokenIds
  }
  const first = defined(expected[0])
  expect(await answer({ suppress_tokens: null, begin_suppress_tokens: null })).toEqual(expected)
  expect(await answer({ suppress_tokens: [first] })).not.toContain(first)
  const begun = await answer({ begin_suppress_tokens: [first, 100_000] })
  expect(begun[0]).not.toBe(first)
  expect(await answer({ begin_suppress_tokens: [defined(begun[0])] })).toEqual(expected)
})

it('draws candidates of one text from one encoding', async () => {
  const { engine, text, golden } = await open('bart')
  const sampling = { temperature: 0.9, topP: 1, topK: 0, minP: 0, presencePenalty: 0 }
  const job = {
    prompts: [asText(defined(golden.cases[0]).text)],
    sampling: { ...sampling, frequencyPenalty: 0, repetitionPenalty: 1, logitBias: {}, seed: 3 },
    n: 3,
    bestOf: 3,
  }
  const draw = async () =>
    (await runJob(job, { engine, text })).result.candidates.map(({ tokenIds }) => tokenIds)
  const drawn = await draw()
  expect(new Set(drawn.map((tokenIds) => tokenIds.join())).size).toBe(3)
  expect(await draw()).toEqual(drawn)
})

describe('a model of many languages', () => {
  it('accepts codes, tags and names of languages, in fields and in instructions', async () => {
    const { engine, text, golden } = await open('nllb')
    const { text: source } = defined(golden.cases[0])
    const answer = async (job: object) =>
      (await runJob({ maxTokens: 8, ...job }, { engine, text })).result.candidates[0]?.tokenIds
    const prompts = [asText(source)]
    const french = await answer({ prompts, languages: { target: 'fra_Latn' } })
    for (const target of ['fr', 'French', 'français', 'fr-FR']) {
      expect(await answer({ prompts, languages: { target } })).toEqual(french)
    }
    const german = await answer({ prompts, languages: { source: 'fr', target: 'German' } })
    expect(german).not.toEqual(await answer({ prompts, languages: { target: 'German' } }))
    const edit = (instruction: string) =>
      answer({ prompts: [{ form: 'edit', input: source, instruction }] })
    expect(await edit('Translate to French.')).toEqual(french)
    expect(await edit('please translate the text from French into German')).toEqual(german)
    expect(await edit('translate French to German:')).toEqual(german)
  })

  it.each<[object, string, RegExp]>([
    [{}, 'target_language', /^Missing required parameter: 'target_language'/],
    [{ languages: { target: 'Klingon' } }, 'target_language', /'Klingon' .* It has deu_Latn, /],
    [{ languages: { source: 'xx', target: 'fr' } }, 'source_language', /'xx' is not a language/],
    [
      { prompts: [{ form: 'edit', input: 'Hi', instruction: 'Make it shorter' }] },
      'instruction',
      /this model translates/,
    ],
    [{ languages: { target: 'fr' }, echo: true, logprobs: 1 }, 'echo', /no log-probabilities/],
    [{ languages: { target: 'fr' }, promptLogprobs: 0 }, 'prompt_logprobs', /no log-probabilities/],
  ])('refuses %j by the name %s', async (job, param, message) => {
    const { engine, text } = await open('nllb')
    const answered = runJob({ prompts: [asText('Hi')], ...job }, { engine, text })
    await expect(answered).rejects.toMatchObject({ param, message: expect.stringMatching(message) })
  })
})

it('refuses languages, chats and searches of a model that has none of them', async () => {
  const { engine, text } = await open('t5')
  const prompts = [asText('Hi')]
  const refused = (job: Parameters<typeof runJob>[0]) =>
    expect(runJob(job, { engine, text })).rejects
  await refused({ prompts, languages: { target: 'fr' } }).toMatchObject({
    param: 'target_language',
    code: 'unsupported_parameter',
  })
  const chat = { form: 'chat', messages: [{ role: 'user', content: 'Hi' }] } as const
  await refused({ prompts: [chat] }).toMatchObject({
    message: expect.stringContaining('This is not a chat model'),
  })
  const search = { task: 'score', query: 'cold', documents: ['water'] } as const
  await refused(search).toMatchObject({ message: expect.stringContaining('cannot search') })
})
