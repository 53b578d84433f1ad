import { describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { defined } from '#shared/json.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'
import { decodeTokens } from '#workers/text/detokenizer.ts'

import { CLOCK, encode, runJob, text, WEATHER } from './completion-job.ts'
import { babble, scriptedEngine, VOCABULARY } from './scripted-engine.ts'

const SAMPLING: GenerateInput['sampling'] = { ...NEUTRAL_SAMPLING, temperature: 0.7, seed: 3 }
const chat = (rest: object) => ({
  form: 'chat' as const,
  messages: [{ role: 'user' as const, content: 'Hi' }],
  ...rest,
})

const nested = (depth: number) => `${'('.repeat(depth)}a${')'.repeat(depth)}`

async function answer(input: Partial<GenerateInput>) {
  const engine = scriptedEngine(babble, 1024)
  const { result } = await runJob({ maxTokens: 100, sampling: SAMPLING, ...input }, { engine })
  return {
    candidate: defined(result.candidates[0]),
    prompt: defined(engine.requests[0]).promptTokenIds,
  }
}

describe('a required form', () => {
  it('of a JSON schema is kept and ends the answer', async () => {
    const schema = {
      type: 'object',
      properties: { ok: { type: 'boolean' }, n: { enum: [1, 2] } },
      required: ['ok', 'n'],
    }
    for (const seed of [1, 2, 3, 4]) {
      const { candidate } = await answer({
        sampling: { ...SAMPLING, seed },
        responseFormat: { type: 'jsonSchema', schema },
      })
      expect(candidate.finishReason).toBe('stop')
      expect(JSON.parse(candidate.text)).toEqual({
        ok: expect.any(Boolean),
        n: expect.toBeOneOf([1, 2]),
      })
    }
  })

  it('of a JSON object begins one, and a length limit may truncate it', async () => {
    const { candidate } = await answer({ responseFormat: { type: 'jsonObject' }, maxTokens: 5 })
    expect(candidate.text[0]).toBe('{')
    expect(candidate.finishReason).toBe('length')
  })

  it('holds with greedy decoding and with a bias against it', async () => {
    const logitBias = Object.fromEntries(encode('{').map((id) => [id, -100]))
    const { candidate } = await answer({
      sampling: { ...SAMPLING, temperature: 0, logitBias },
      responseFormat: {
        type: 'jsonSchema',
        schema: { type: 'object', additionalProperties: false },
      },
    })
    expect(candidate.text).toBe('{}')
  })

  it.each<[GenerateInput['responseFormat'], RegExp]>([
    [{ type: 'choice', choices: ['yes', 'no', 'maybe'] }, /^(yes|no|maybe)$/],
    [
      { type: 'regex', pattern: '[a-f]{3}-\\d{2}|"x"', path: 'guided_regex' },
      /^([a-f]{3}-\d{2}|"x")$/,
    ],
    [
      {
        type: 'grammar',
        grammar: 'root ::= item ("," item){2}\nitem ::= [a-c]+ # letters\n  | "(" root ")"',
        path: 'guided_grammar',
      },
      /^[a-c(][a-c(),]*,[a-c(),]*$/,
    ],
    [
      {
        type: 'grammar',
        grammar: '?start: item ("," item)~2 // three\nitem: /[a-c]+/ | "(" start ")"',
        path: 'structured_outputs.grammar',
      },
      /^[a-c(][a-c(),]*,[a-c(),]*$/,
    ],
  ])('of the text %j is kept', async (responseFormat, expected) => {
    const logitBias = Object.fromEntries(encode('),').map((id) => [id, 5]))
    for (const seed of [1, 2, 3]) {
      const { candidate } = await answer({
        sampling: { ...SAMPLING, seed, logitBias },
        responseFormat,
      })
      expect(candidate.text).toMatch(expected)
    }
  })

  // Schemas that no grammar enforces, and invalid ones.
  const UNENFORCEABLE: readonly object[] = [
    { type: 'object', properties: { a: { type: 'number', multipleOf: 0.1 } } },
    { type: 'object', properties: { a: { type: 'rune' } } },
    { type: 'object', properties: { a: false }, required: ['a'] },
    { type: 'object', properties: { a: { pattern: '(?<=a)b' } } },
    { type: 'object', properties: { a: { $ref: '#/$defs/missing' } } },
    { type: 'object', minProperties: 9, properties: { a: {} } },
    { type: 'object', properties: { a: { items: [{}, {}] } } },
  ]

  it.each(UNENFORCEABLE)('of a schema that cannot be enforced is an object: %j', async (schema) => {
    const engine = scriptedEngine(babble, 1024)
    const bias = Object.fromEntries(encode('}').map((id) => [id, 9]))
    const sampling = { ...SAMPLING, logitBias: bias }
    const responseFormat = { type: 'jsonSchema', schema, path: 'x' } as const
    const { result, ignored } = await runJob({ sampling, responseFormat }, { engine })
    expect(result.candidates[0]?.text[0]).toBe('{')
    expect(ignored).toEqual(['x'])
    const tools = [{ name: 'a', parameters: schema }]
    const prompts = [chat({ tools, toolChoice: 'required' })]
    const called = await runJob({ sampling, prompts, maxTokens: 90 }, { engine })
    expect(called.result.candidates[0]?.text).toMatch(
      /^<tool_call>\n\{"name": "a", "arguments": \{/,
    )
  })

  it.each<[GenerateInput['responseFormat'], string, RegExp]>([
    [{ type: 'regex', pattern: '(?=a)a', path: 'guided_regex' }, 'guided_regex', /look-around/],
    [{ type: 'regex', pattern: nested(5000), path: 'r' }, 'r', /a group within 64 others/],
    [{ type: 'grammar', grammar: 'start = "a"', path: 'g' }, 'g', /'::=' after the name of a rule/],
    [{ type: 'grammar', grammar: 'root: "a"', path: 'g' }, 'g', /no rule 'start'/],
    [{ type: 'grammar', grammar: 'start: /(?=a)a/', path: 'g' }, 'g', /look-around/],
    [{ type: 'grammar', grammar: 'start: start "a" | "b"', path: 'g' }, 'g', /begin with itself/],
    [{ type: 'grammar', grammar: 'root ::= root "a" | "b"', path: 'g' }, 'g', /begin with itself/],
    [{ type: 'grammar', grammar: 'root ::= "a" root', path: 'g' }, 'g', /no text satisfies it/],
    [{ type: 'grammar', grammar: 'root ::= other', path: 'g' }, 'g', /no rule 'other'/],
  ])('%j is refused and named', async (responseFormat, param, message) => {
    const refused = answer({ responseFormat })
    await expect(refused).rejects.toMatchObject({ kind: 'invalidRequest', param })
    await expect(refused).rejects.toThrow(message)
  })

  it.each([
    { toolChoice: 'required' as const, tools: [WEATHER, CLOCK], names: ['weather', 'clock'] },
    { toolChoice: { name: 'weather' }, tools: [CLOCK, WEATHER], names: ['weather'] },
    { toolChoice: { name: 'clock' }, tools: [CLOCK, WEATHER], names: ['clock'] },
  ])('of a call is one of $names', async ({ toolChoice, tools, names }) => {
    for (const seed of [1, 2, 3]) {
      const { candidate } = await answer({
        sampling: {
          ...SAMPLING,
          seed,
          logitBias: Object.fromEntries(encode('}"').map((id) => [id, 6])),
        },
        prompts: [chat({ tools, toolChoice })],
        maxTokens: 150,
      })
      const inside = /^<tool_call>\n(.*)\n<\/tool_call>$/.exec(candidate.text)?.[1]
      expect(candidate.finishReason, candidate.text).toBe('stop')
      const call = JSON.parse(inside as string) as { name: string; arguments: object }
      expect(names).toContain(call.name)
      if (call.name === 'weather') {
        expect(call.arguments).toEqual({ city: expect.any(String), days: expect.any(Number) })
      }
    }
  })

  it('shows tools to the model unless the choice is none', async () => {
    const none = await answer({ prompts: [chat({ tools: [WEATHER], toolChoice: 'none' })] })
    const auto = await answer({ prompts: [chat({ tools: [WEATHER], toolChoice: 'auto' })] })
    expect(auto.prompt.length).toBeGreaterThan(none.prompt.length + 20)
    expect(none.prompt).toEqual((await answer({ prompts: [chat({})] })).prompt)
  })
})

describe('a score job', () => {
  const documents = ['The river is cold.', 'Paris', '']
  const query = 'the river'

  it('measures how much likelier the query becomes, in document order', async () => {
    // A model that expects "the river" after any text that holds "river is", and nothing otherwise.
    const engine = scriptedEngine((tokenIds) => {
      const logits = new Float32Array(VOCABULARY)
      const seen = decodeTokens(text.tokenizer.pieces, tokenIds)
      if (seen.includes('river is')) for (const id of encode(query)) logits[id] = 2
      return logits
    })
    const { raw, usage, promptTokens, deltas } = await runJob(
      { task: 'score', query, documents },
      { engine },
    )
    expect(raw).toMatchObject({ task: 'score' })
    const scores = raw.task === 'score' ? raw.scores : []
    expect(scores[0]).toBeGreaterThan(50)
    expect(scores.slice(1)).toEqual([expect.closeTo(0), expect.closeTo(0)])
    expect(usage).toMatchObject({ completionTokens: 0, promptTokens })
    expect(deltas).toEqual([])
    expect(engine.requests.every(({ maxNewTokens }) => maxNewTokens === 0)).toBe(true)
  })

  it('follows the published recipe for the prompt', async () => {
    const engine = scriptedEngine(babble)
    await runJob({ task: 'score', query, documents: ['Paris'] }, { engine })
    const bridge = '\n\n---\n\nThe above passage is related to: '
    expect(engine.requests.map(({ promptTokenIds }) => promptTokenIds)).toEqual([
      [0, ...encode(`${bridge}${query}`)],
      [0, ...encode(`Paris${bridge}${query}`)],
    ])
  })

  it('names the document that is too long', async () => {
    const long = { task: 'score' as const, query, documents: ['short', 'z'.repeat(400)] }
    await expect(runJob(long, { engine: scriptedEngine(babble) })).rejects.toMatchObject({
      kind: 'invalidRequest',
      param: 'documents[1]',
      code: 'context_length_exceeded',
    })
  })
})
