import { describe, expect, it } from 'vitest'

import { answerParser } from '#api/inference/answers/answer-parser.ts'
import { CALL_FORMATS, type CallFormatName } from '#shared/contracts/call-formats.ts'
import type { GenerateInput, ToolChoice, ToolDefinition } from '#shared/contracts/completion.ts'
import type { TextModel } from '#workers/text/text-model.ts'

import { BASE, encode, runJob, text } from './completion-job.ts'
import { babble, type LogitsOf, scriptedEngine } from './scripted-engine.ts'

const FAMILIES = Object.keys(CALL_FORMATS) as CallFormatName[]
const WEATHER: ToolDefinition = {
  name: 'weather',
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string', enum: ['Paris', 'Rome'] },
      days: { type: 'integer', minimum: 0, maximum: 9 },
      exact: { type: 'boolean' },
      isMetric: { const: true },
      unit: { const: 'km' },
    },
    required: ['city', 'days', 'isMetric', 'unit'],
  },
}
const CLOCK: ToolDefinition = { name: 'clock' }

function chat(toolChoice: ToolChoice, isStrict = false): Partial<GenerateInput> {
  const messages = [{ role: 'user' as const, content: 'Hi' }]
  const tools = [{ ...WEATHER, isStrict }, CLOCK]
  return { prompts: [{ form: 'chat', messages, tools, toolChoice }] }
}

function modelOf(calls: CallFormatName): TextModel {
  return { ...text, dialect: { calls } }
}

/** Writes some words, then babbles on. */
function beginning(words: string): LogitsOf {
  const begun = encode(words)
  let promptLength: number | undefined
  return (tokenIds) => {
    promptLength ??= tokenIds.length
    const next = begun[tokenIds.length - promptLength]
    const logits = babble(tokenIds)
    if (next !== undefined) logits[next] = 100
    return logits
  }
}

async function answer(calls: CallFormatName, input: Partial<GenerateInput>, words = '', seed = 1) {
  const sampling = { ...BASE.sampling, temperature: 0.7, seed }
  const engine = scriptedEngine(beginning(words), 1024)
  const request = { maxTokens: 700, sampling, ...input }
  const { result } = await runJob(request, { engine, text: modelOf(calls) })
  const parser = answerParser(
    { tools: [WEATHER, CLOCK], choice: 'auto', callsMax: 9, isLegacy: false },
    { calls },
  )
  const found: { name: string; arguments: string }[] = []
  const written = result.candidates[0]?.text ?? ''
  for (const part of [...(parser?.push(written) ?? []), ...(parser?.finish() ?? [])]) {
    if (part.type === 'callStart') found.push({ name: part.name, arguments: '' })
    if (part.type === 'callArguments') {
      const call = found[part.index]
      if (call !== undefined) call.arguments += part.text
    }
  }
  return { written, calls: found }
}

function expectWeather(call: { name: string; arguments: string } | undefined, written: string) {
  expect(call?.name, written).toBe('weather')
  const { city, days, exact = true, ...fixed } = JSON.parse(call?.arguments ?? 'null')
  expect(['Paris', 'Rome'], written).toContain(city)
  expect(days, written).toBeGreaterThanOrEqual(0)
  expect(days, written).toBeLessThanOrEqual(9)
  expect(typeof exact, written).toBe('boolean')
  expect(fixed, written).toEqual({ isMetric: true, unit: 'km' })
}

describe.each(FAMILIES)('calls in the format of %s', (family) => {
  it('are forced into that syntax, with the arguments that the tool accepts', async () => {
    for (const seed of [1, 2, 3]) {
      const { written, calls } = await answer(family, chat({ name: 'weather' }), '', seed)
      expect(calls, written).toHaveLength(1)
      expectWeather(calls[0], written)
    }
    const { written, calls } = await answer(family, chat({ name: 'clock' }))
    expect(calls, written).toEqual([{ name: 'clock', arguments: '{}' }])
  })

  it('follow the schema of a strict tool from where the model begins one', async () => {
    const format = CALL_FORMATS[family]
    const whole = `${'opening' in format.grammar ? format.grammar.opening : ''}${format.grammar.call}`
    const words = whole.slice(0, whole.indexOf('$NAME'))
    const { written, calls } = await answer(family, chat('auto', true), `${words}weather`)
    expectWeather(calls[0], written)
  })
})

describe('the start of a chat', () => {
  it('reports how the answer is written, and that the prompt has opened the reasoning', async () => {
    const dialect = { calls: 'qwen3_coder', reasoning: 'think' } as const
    const opened: TextModel = {
      ...text,
      dialect,
      chatTemplate: {
        reads: () => false,
        render: () => ({ text: 'user\n<think>\n', content: [] }),
      },
    }
    const engine = scriptedEngine(babble, 1024)
    const free = await runJob(chat('auto'), { engine, text: opened })
    expect(free.result.dialect).toEqual({ ...dialect, beginsInReasoning: true })
    const forced = await runJob(chat('required'), { engine, text: opened })
    expect(forced.result.dialect).toEqual(dialect)
    const plain = await runJob({ maxTokens: 3 }, { engine, text: opened })
    expect(plain.result).not.toHaveProperty('dialect')
  })

  it('shows special tokens of calls as text if tools are offered', async () => {
    const special = 5
    const marked: TextModel = {
      ...text,
      dialect: { calls: 'mistral' },
      tokenizer: {
        ...text.tokenizer,
        findTokenId: (token) => (token === '[TOOL_CALLS]' ? special : undefined),
        pieces: {
          ...text.tokenizer.pieces,
          bytesOf: (id) =>
            id === special ? Buffer.from('[TOOL_CALLS]') : text.tokenizer.pieces.bytesOf(id),
          firstBytesOf: (id) =>
            id === special ? Buffer.from('[TOOL_CALLS]') : text.tokenizer.pieces.firstBytesOf(id),
          isSpecial: (id) => id === special || text.tokenizer.pieces.isSpecial(id),
        },
      },
    }
    const engine = scriptedEngine((tokenIds) => {
      const logits = babble(tokenIds)
      logits[special] = 50
      return logits
    }, 2048)
    const offered = await runJob({ ...chat('auto'), maxTokens: 1 }, { engine, text: marked })
    expect(offered.result.candidates[0]?.text).toBe('[TOOL_CALLS]')
    const without = await runJob({ ...chat('none'), maxTokens: 1 }, { engine, text: marked })
    expect(without.result.candidates[0]?.text).toBe('')
  })
})
