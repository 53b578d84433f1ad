import { isDeepStrictEqual } from 'node:util'

import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { ChatMessage, ToolDefinition } from '#shared/contracts/completion.ts'
import { runJob } from '#test/unit/workers/processors/completion-job.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import { measuredScores, modelFolder, readEvals, SCORE_MARGIN } from './shipped.ts'

interface Problem {
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly { readonly function: ToolDefinition }[]
  readonly expected: string
}

type Comparison = 'exact' | 'json' | 'number' | 'tool'

// Held-out problems and scores of onnxruntime, both by `python -m models.training.tiny_chat
// evaluate`.
const { gates } = readEvals<{
  gates: Record<string, { compare: Comparison; problems: readonly Problem[] }>
}>('tiny-chat')
const measured = measuredScores('tiny-chat')
const folder = modelFolder('tiny-chat')
const runtime = openRuntime()
const engine = await openTextEngine({ runtime, folder, slots: 8, intraOpThreads: 1 })
const text = await loadTextModel(folder, systemClock)

afterAll(async () => {
  await engine.close()
  await runtime.close()
})

async function ask({ messages, tools = [] }: Problem): Promise<string> {
  const prompt = { form: 'chat' as const, messages, tools: tools.map((tool) => tool.function) }
  const { result } = await runJob({ prompts: [prompt], maxTokens: 160 }, { engine, text })
  return result.candidates[0]?.text ?? ''
}

function isRight(answer: string, expected: string, comparison: Comparison): boolean {
  switch (comparison) {
    case 'json':
      return parse(answer) !== undefined && isDeepStrictEqual(parse(answer), parse(expected))
    case 'tool':
      return isRight(argumentsOf(answer), argumentsOf(expected), 'json')
    case 'number':
      return answer.match(/-?\d+/g)?.at(-1) === expected.match(/-?\d+/g)?.at(-1)
    default:
      return answer.trim() === expected
  }
}

function argumentsOf(answer: string): string {
  return /^\s*<tool_call>\n(.*)\n<\/tool_call>\s*$/s.exec(answer)?.[1] ?? ''
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return undefined
  }
}

describe('tiny-chat answers held-out problems in the engine as well as it was measured', () => {
  it.each(Object.entries(gates))('%s', async (name, { compare, problems }) => {
    expect(problems.length).toBeGreaterThan(20)
    const answers = await Promise.all(problems.map(ask))
    const right = problems.filter(({ expected }, at) =>
      isRight(answers[at] as string, expected, compare),
    )
    const least = (measured[name] as number) - SCORE_MARGIN
    expect(right.length / problems.length).toBeGreaterThanOrEqual(least)
  })
})
