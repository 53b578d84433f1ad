import { expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import type { Tag, TagFormat } from '#shared/contracts/structural-tag.ts'
import { BudgetExceededError, WorkBudget } from '#workers/preparation/work-budget.ts'
import { compileConstraint } from '#workers/processors/constraint-plan.ts'
import { Automaton } from '#workers/sampling/constraint/automaton.ts'

import { runJob } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const WEATHER = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}
const json = (schema: object): TagFormat => ({ kind: 'json', schema, path: 'structural_tag' })
const ANY: TagFormat = { kind: 'anyText', excludes: [] }
const tag = (begin: string, content: TagFormat, ...ends: string[]): Tag => ({
  kind: 'tag',
  begin,
  content,
  ends,
})
const CALL = tag('<f=weather>', json(WEATHER), '</f>')
const NOTE = tag('<f=note>', ANY, '</f>', '<end>')
const triggered = (fields: object = {}): TagFormat => ({
  kind: 'triggered',
  triggers: ['<f='],
  tags: [CALL, NOTE],
  excludes: [],
  atLeastOne: false,
  stopAfterFirst: false,
  ...fields,
})
const separated = (fields: object = {}): TagFormat => ({
  kind: 'separated',
  tags: [CALL, NOTE],
  separator: ',',
  atLeastOne: true,
  stopAfterFirst: false,
  ...fields,
})
const CALLED = '<f=weather>{"city":"Rome"}</f>'

function accepts(format: TagFormat, text: string): boolean {
  const asked = { type: 'structuralTag', format, path: 'structural_tag' } as const
  const plan = { kind: 'form', format: asked, tools: [], calls: 'hermes' } as const
  const automaton = new Automaton(compileConstraint(plan, new WorkBudget()))
  let state: typeof automaton.start | null = automaton.start
  for (const byte of Buffer.from(text)) state = state && automaton.step(state, byte)
  return state?.isAccepting === true
}

it.each<[TagFormat, string, boolean]>([
  [triggered(), 'Just text, with < and <f and é.', true],
  [triggered(), `Wait: <<f${CALLED} and then ${CALLED}.`, true],
  [triggered(), `${CALLED}${CALLED}`, true],
  [triggered(), 'a <f=weather>{"town":1}</f>', false],
  [triggered(), 'a <f=other>', false],
  [triggered(), 'a <f=weather>{"city":"Rome"}', false],
  [triggered(), '<f=note>any </ text <f= too</f> and more', true],
  [triggered(), '<f=note>ended otherwise<end>', true],
  [triggered({ stopAfterFirst: true }), `text ${CALLED}`, true],
  [triggered({ stopAfterFirst: true }), `${CALLED} text`, false],
  [triggered({ atLeastOne: true }), `${CALLED} text ${CALLED}`, true],
  [triggered({ atLeastOne: true }), 'text', false],
  [triggered({ excludes: ['secret'] }), 'no secre', true],
  [triggered({ excludes: ['secret'] }), 'no secret', false],
  [separated(), `${CALLED},${CALLED}`, true],
  [separated(), `${CALLED}${CALLED}`, false],
  [separated(), '', false],
  [separated({ atLeastOne: false }), '', true],
  [separated({ stopAfterFirst: true }), `${CALLED},${CALLED}`, false],
  // Text that begins anew within a beginning of the end: a, ab, aba, abab…
  [tag('[', ANY, 'abac'), '[ababac', true],
  [tag('[', ANY, 'abac'), '[abacab', false],
  // The end of a tag ends the triggered text within it.
  [tag('<all>', triggered(), '</all>'), `<all>some ${CALLED} text</all>`, true],
  [tag('<all>', triggered(), '</all>'), '<all>some</all> text', false],
  [{ kind: 'sequence', parts: [{ kind: 'text', text: 'a:' }, ANY] }, 'a: b', true],
  [{ kind: 'sequence', parts: [ANY, { kind: 'text', text: '!' }] }, 'Stop! Now!', true],
  [{ kind: 'choice', parts: [CALL, NOTE] }, '<f=note></f>', true],
  [{ kind: 'repeat', body: NOTE, min: 2, max: 2 }, '<f=note></f><f=note>b</f>', true],
  [{ kind: 'repeat', body: NOTE, min: 2 }, '<f=note></f>', false],
  [{ kind: 'regex', pattern: 'a+', path: 'structural_tag' }, 'aaa', true],
  [{ kind: 'grammar', grammar: 'root ::= "a" "b"', path: 'structural_tag' }, 'ab', true],
])('%j reads %j: %s', (format, text, expected) => {
  expect(accepts(format, text)).toBe(expected)
})

it('charges a text that is searched for before it makes a node of each character', () => {
  const budget = new WorkBudget(100_000)
  const format: TagFormat = { kind: 'anyText', excludes: ['a'.repeat(1_000_000)] }
  const asked = { type: 'structuralTag', format, path: 'structural_tag' } as const
  const plan = { kind: 'form', format: asked, tools: [], calls: 'hermes' } as const
  expect(() => compileConstraint(plan, budget)).toThrow(BudgetExceededError)
  expect(budget.used).toBeGreaterThan(1_000_000)
})

const SAMPLING: GenerateInput['sampling'] = {
  temperature: 0.7,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  logitBias: {},
  seed: 1,
}

it.each([1, 2, 3])('an answer that must have a tag has it, with seed %i', async (seed) => {
  const format = triggered({ tags: [CALL], atLeastOne: true, stopAfterFirst: true })
  const { result } = await runJob(
    {
      maxTokens: 300,
      sampling: { ...SAMPLING, seed },
      responseFormat: { type: 'structuralTag', format, path: 'structural_tag' },
    },
    { engine: scriptedEngine(babble, 1024) },
  )
  const [candidate] = result.candidates
  expect(candidate?.finishReason).toBe('stop')
  const text = /^<f=weather>(.*)<\/f>$/s.exec(candidate?.text ?? '')?.[1] ?? ''
  expect(JSON.parse(text)).toEqual({ city: expect.any(String) })
})

it('does not constrain a schema that cannot be enforced, and reports it', async () => {
  const format = tag('<f=a>', json({ type: 'object', minProperties: 99_999_999 }), '</f>')
  const { result, ignored } = await runJob(
    {
      maxTokens: 20,
      sampling: SAMPLING,
      responseFormat: { type: 'structuralTag', format, path: 'structural_tag' },
    },
    { engine: scriptedEngine(babble, 1024) },
  )
  expect(result.candidates[0]?.text).toMatch(/^<f=a>\{/)
  expect(ignored).toEqual(['structural_tag'])
})
