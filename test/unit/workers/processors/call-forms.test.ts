import { describe, expect, it } from 'vitest'

import type { GenerateInput, ToolDefinition } from '#shared/contracts/completion.ts'

import { BASE, CLOCK, encode, runJob, WEATHER } from './completion-job.ts'
import { babble, type LogitsOf, scriptedEngine, VOCABULARY } from './scripted-engine.ts'

const OPENING = '<tool_call>'

function chat(tools: readonly ToolDefinition[]): Pick<GenerateInput, 'prompts'> {
  const messages = [{ role: 'user' as const, content: 'Hi' }]
  return { prompts: [{ form: 'chat', messages, tools, toolChoice: 'auto' }] }
}

/** Begins its answer in one way, and babbles on, with a liking for what ends things. */
function beginning(words: string): () => LogitsOf {
  const begun = encode(words)
  return () => {
    let promptLength: number | undefined
    return (tokenIds) => {
      promptLength ??= tokenIds.length
      const next = begun[tokenIds.length - promptLength]
      const logits = babble(tokenIds)
      for (const id of encode('}"')) logits[id] = (logits[id] as number) + 6
      if (next !== undefined) logits[next] = 100
      return logits
    }
  }
}

async function answers(input: Partial<GenerateInput>, model: () => LogitsOf): Promise<string[]> {
  const texts: string[] = []
  for (const seed of [1, 2, 3, 4]) {
    const sampling = { ...BASE.sampling, temperature: 0.7, seed }
    const engine = scriptedEngine(model(), 1024)
    const { result } = await runJob({ maxTokens: 200, sampling, ...input }, { engine })
    texts.push(result.candidates[0]?.text as string)
  }
  return texts
}

function callOf(text: string): { name: string; arguments: Record<string, unknown> } {
  const inside = /<tool_call>\n?(.*?)\n?<\/tool_call>/s.exec(text)?.[1]
  expect(inside, text).toBeDefined()
  return JSON.parse(inside as string)
}

describe('a call that the model chooses to make', () => {
  it('names an offered function, with the arguments that it accepts', async () => {
    for (const text of await answers(chat([WEATHER]), beginning(`Well, ${OPENING}`))) {
      expect(text.startsWith(`Well, ${OPENING}`)).toBe(true)
      const call = callOf(text)
      expect(call.name).toBe('weather')
      expect(call.arguments).toEqual({ city: expect.any(String), days: expect.any(Number) })
    }
    for (const text of await answers(chat([CLOCK]), beginning(OPENING))) {
      expect(callOf(text)).toEqual({ name: 'clock', arguments: {} })
    }
  })

  it('accepts any object if its schema cannot be enforced, unless it is strict', async () => {
    const odd = {
      name: 'odd',
      parameters: { type: 'object', not: {} },
      schemaPath: 'tools[0].function.parameters',
    }
    for (const text of await answers(chat([odd]), beginning(OPENING))) {
      expect(callOf(text)).toEqual({ name: 'odd', arguments: expect.any(Object) })
    }
    await expect(
      answers(chat([{ ...odd, isStrict: true }]), beginning(OPENING)),
    ).rejects.toMatchObject({
      kind: 'invalidRequest',
      param: 'tools[0].function.parameters',
      message: expect.stringContaining("'tools[0].function.parameters': the keyword 'not'"),
    })
  })

  it('does not change other text', async () => {
    const free = (words: string): LogitsOf => {
      const said = encode(words)
      let promptLength: number | undefined
      return (tokenIds) => {
        promptLength ??= tokenIds.length
        const logits = new Float32Array(VOCABULARY)
        logits[said[tokenIds.length - promptLength] ?? 2] = 50
        return logits
      }
    }
    const words = 'a <tool_ <<tool_calls> {"name": "x" <b>'
    expect(await answers(chat([WEATHER]), () => free(words))).toEqual([words, words, words, words])
  })
})

describe('a required form beside functions', () => {
  const asked = {
    ...chat([WEATHER, CLOCK]),
    responseFormat: {
      type: 'jsonSchema' as const,
      schema: { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] },
    },
  }

  it('is kept if the model answers', async () => {
    for (const text of await answers(asked, beginning('{'))) {
      expect(JSON.parse(text)).toEqual({ ok: expect.any(Boolean) })
    }
  })

  it('lets the model call one of them instead', async () => {
    for (const text of await answers(asked, beginning(OPENING))) {
      expect(['weather', 'clock']).toContain(callOf(text).name)
    }
  })
})
