import { afterEach, describe, expect, it } from 'vitest'

import { BASE, text as llama } from '#test/unit/workers/processors/completion-job.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { findConstraint } from '#workers/processors/completion-constraint.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { cacheScopeOf } from '#workers/processors/completion-prompt.ts'

import { generate } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, openEngine } from './open-engine.ts'

afterEach(closeEngines)

const TRIES = 1000
const LENGTH = 24

/** The work that a prompt costs, which is what a clock could measure. */
async function workOf(engine: TextEngine, promptTokenIds: number[], cacheScope: string) {
  const before = engine.stats()
  const { cachedTokens } = await generate(engine, { promptTokenIds, cacheScope, maxNewTokens: 1 })
  const after = engine.stats()
  return {
    reported: cachedTokens,
    cached: after.cachedTokens - before.cachedTokens,
    computed: after.promptTokens - before.promptTokens,
    steps: after.steps - before.steps,
  }
}

describe.each([
  ['llama-in-place', {}],
  ['llama', {}],
  ['llama', AS_EXPORTED],
] as const)('prefixes of %s, %o', (name, form) => {
  it('cost another organization the same whether or not they are cached, in 1,000 tries', async () => {
    const engine = await openEngine(name, { slots: 4, ...form })
    const works = new Set<string>()
    for (let index = 0; index < TRIES; index += 1) {
      await generate(engine, {
        promptTokenIds: makePrompt(index, LENGTH),
        cacheScope: 'victim',
        maxNewTokens: 1,
      })
      // Every second guess is right.
      const guess = makePrompt(index % 2 === 0 ? index : index + 150, LENGTH)
      works.add(JSON.stringify(await workOf(engine, guess, 'attacker')))
    }
    expect([...works]).toEqual([
      JSON.stringify({ reported: 0, cached: 0, computed: LENGTH, steps: 1 }),
    ])
  })

  it('are reused within an organization', async () => {
    const engine = await openEngine(name, { slots: 4, ...form })
    await workOf(engine, makePrompt(1, LENGTH), 'own')
    expect((await workOf(engine, makePrompt(1, LENGTH), 'own')).computed).toBeLessThan(LENGTH)
  })
})

it('organizations share caches only if the operator allows it', () => {
  const text = { tokenizer: { pieces: {}, findTokenId: () => undefined }, endTokenIds: new Set() }
  const scopes = (options: object) => {
    const model = createCompletionModel({} as never, text as never, options)
    return ['org_1', 'org_2'].map((id) => cacheScopeOf(model, id))
  }
  expect(scopes({})).toEqual(['org_1', 'org_2'])
  expect(scopes({ sharesCaches: true })).toEqual(['', ''])
})

it('grammars of one organization are no quicker for another', async () => {
  const model = createCompletionModel({} as never, llama)
  const responseFormat = { type: 'jsonSchema' as const, schema: { type: 'object' } }
  const find = (scope: string) =>
    findConstraint(model, { ...BASE, responseFormat }, { cacheScope: scope })
  const own = await find('org_1')
  expect((await find('org_1')).source).toBe(own.source)
  expect((await find('org_2')).source).not.toBe(own.source)
})
