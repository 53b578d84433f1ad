import { describe, expect, it } from 'vitest'

import type { GenerateInput, ToolDefinition } from '#shared/contracts/completion.ts'
import { countTurns } from '#test/support/turns.ts'
import { findConstraint } from '#workers/processors/completion-constraint.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'

import { BASE, text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

function tool(index: number, fields: Partial<ToolDefinition> = {}): ToolDefinition {
  const names = Array.from({ length: 12 }, (_, place) => `property_${index}_${place}`)
  const properties = Object.fromEntries(
    names.map((name, place) => [
      name,
      place % 2 === 0 ? { type: 'string' } : { type: 'integer', minimum: place },
    ]),
  )
  const parameters = { type: 'object', properties, required: names }
  return { name: `tool_${index}`, parameters, ...fields }
}

function prepare(
  tools: readonly ToolDefinition[],
  fields: Partial<GenerateInput> & { readonly toolChoice?: 'auto' | 'required' } = {},
) {
  const { toolChoice = 'auto', ...input } = fields
  const messages = [{ role: 'user' as const, content: 'Hi' }]
  const prompts = [{ form: 'chat' as const, messages, tools, toolChoice }]
  const model = createCompletionModel(scriptedEngine(babble, 1024), text)
  return findConstraint(model, { ...BASE, ...input, prompts }, { cacheScope: 'org_1' })
}

const MANY = Array.from({ length: 128 }, (_, index) => tool(index))
const STRICT = MANY.map((each) => ({ ...each, isStrict: true }))

describe('the grammar of very many tools', () => {
  it.each([
    ['of which one must be called', MANY, { toolChoice: 'required' as const }],
    ['that are strict', STRICT, {}],
    ['that are strict, beside a form', STRICT, { responseFormat: { type: 'jsonObject' as const } }],
  ])('%s is made in turns with everything else', async (_title, tools, fields) => {
    const turns = countTurns()
    const source = await prepare(tools, fields)
    expect(turns.end()).toBeGreaterThan(100)
    expect(source).toBeDefined()
  })

  it('reads the schema of an optional tool only when it is called', async () => {
    let looks = 0
    const watched = new Proxy(tool(0).parameters as object, {
      get: (target, name) => {
        if (name === 'required') looks += 1
        return Reflect.get(target, name)
      },
    })
    const tools = [{ name: 'watched', parameters: watched as Record<string, unknown> }, tool(1)]
    const { source } = await prepare(tools)
    const looksAtAnswer = (words: string): number => {
      const looksBefore = looks
      const follower = source?.create()
      for (const id of text.tokenizer.encode(words, { addSpecialTokens: false })) {
        follower?.accept(id)
      }
      return looks - looksBefore
    }
    // The opening of the first call writes down which tools there are.
    looksAtAnswer('Well, <tool_call>')
    expect(looksAtAnswer('<tool_call>\n{"name": "tool_1", "arguments": {"prop')).toBe(0)
    expect(looksAtAnswer('<tool_call>\n{"name": "watched", "arguments": {')).toBeGreaterThan(0)
    expect(looksAtAnswer('<tool_call>\n{"name": "watched", "arguments": {')).toBe(0)
  })
})
