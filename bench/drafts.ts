import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'

import { systemClock } from '#shared/clock.ts'
import type { Prompt } from '#shared/contracts/completion.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { SequenceRequest, TextEngine } from '#workers/engine/types.ts'
import {
  type CompletionModel,
  createCompletionModel,
} from '#workers/processors/completion-model.ts'
import { type PreparedPrompt, preparePrompt } from '#workers/processors/completion-prompt.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { EditFollower, proposeByPromptLookup } from '#workers/text/prompt-lookup.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

const FOLDER = 'models/tiny-chat'
/** Held-out problems of the kinds that the model was made for. */
const PROBLEMS = 'test/fixtures/evals/tiny-chat.json'
const NUM_TEXTS = 12
const TIMES_PER_ROUND = 8
const SPACE = 0x20

type Propose = NonNullable<SequenceRequest['propose']>

/** Texts with drafts of their next tokens, and how these are drafted. */
interface DraftedTexts {
  readonly name: string
  readonly prompts: readonly Prompt[]
  readonly target: number
  readonly drafting: (model: CompletionModel, prompt: PreparedPrompt) => Propose
}

/** One stream with drafts ÷ without: edits, and answers to questions about a text. */
export async function benchDrafts(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: 16 })
  try {
    const model = createCompletionModel(engine, await loadTextModel(FOLDER, systemClock))
    const problems = await readProblems()
    const lookup = { target: 1.6, drafting: () => proposeByPromptLookup }
    const kinds: readonly DraftedTexts[] = [
      { name: 'edits', prompts: editsOf(problems.spelling), target: 2, drafting: followOriginal },
      { name: 'answers from a text', prompts: longest(problems.context), ...lookup },
      { name: 'answers from earlier turns', prompts: longest(problems.recall), ...lookup },
    ]
    const figures: Figure[] = []
    for (const kind of kinds) figures.push(await measureDrafts(engine, model, kind))
    return figures
  } finally {
    await engine.close()
    await runtime.close()
  }
}

async function measureDrafts(
  engine: TextEngine,
  model: CompletionModel,
  { name, prompts, target, drafting }: DraftedTexts,
): Promise<Figure> {
  const prepared: PreparedPrompt[] = []
  for (const prompt of prompts) prepared.push(await preparePrompt(model, prompt, null))
  const answer = (prompt: PreparedPrompt, isDrafted: boolean, onToken?: () => void) =>
    runGreedy(engine, {
      promptTokenIds: prompt.tokenIds,
      maxNewTokens: prompt.maxNewTokens,
      endTokenIds: model.text.endTokenIds,
      // A scope of its own: no run starts from what another one left in the cache.
      cacheScope: randomUUID(),
      ...(isDrafted && { propose: drafting(model, prompt) }),
      ...(onToken && { onToken }),
    })
  for (const prompt of prepared) {
    assert.deepEqual(await answer(prompt, true), await answer(prompt, false), 'drafts changed it')
  }
  // Reading the prompt costs both the same and is left out: from the first token to the end.
  const speed = async (isDrafted: boolean): Promise<number> => {
    let tokens = 0
    let durationMs = 0
    for (let time = 0; time < TIMES_PER_ROUND; time += 1) {
      for (const prompt of prepared) {
        let firstAt = 0
        const tokenIds = await answer(prompt, isDrafted, () => {
          firstAt ||= performance.now()
        })
        durationMs += performance.now() - firstAt
        tokens += tokenIds.length - 1
      }
    }
    return (tokens * 1000) / durationMs
  }
  const found = await alternate(
    () => speed(true),
    () => speed(false),
  )
  const about = `${name} of tiny-chat, one stream: drafted ÷ plain, same tokens`
  return { name: about, unit: 'tokens/s', ...found, target: { atLeast: target } }
}

/** Drafts along the original of an edit. */
function followOriginal(
  { text }: CompletionModel,
  { tokenIds: promptTokenIds, originalStart }: PreparedPrompt,
): Propose {
  assert(originalStart !== undefined, 'the original was not found in the prompt')
  const isWordStart = (tokenId: number) => text.tokenizer.pieces.bytesOf(tokenId)[0] === SPACE
  const follower = new EditFollower({ promptTokenIds, originalStart, isWordStart })
  return (tokenIds) => follower.propose(tokenIds)
}

interface Problem {
  readonly messages: readonly { readonly role: 'user' | 'assistant'; readonly content: string }[]
}

async function readProblems() {
  const { gates } = JSON.parse(await readFile(PROBLEMS, 'utf8')) as {
    gates: Record<string, { problems: Problem[] }>
  }
  const problemsOf = (skill: string): readonly Problem[] => gates[skill]?.problems ?? []
  return {
    spelling: problemsOf('spelling'),
    context: problemsOf('context'),
    recall: problemsOf('recall'),
  }
}

function longest(problems: readonly Problem[]): Prompt[] {
  const length = ({ messages }: Problem): number => JSON.stringify(messages).length
  return problems
    .toSorted((one, other) => length(other) - length(one))
    .slice(0, NUM_TEXTS)
    .map(({ messages }) => ({ form: 'chat', messages }))
}

/** The longest of the problems that are put as an instruction, a colon and a text. */
function editsOf(problems: readonly Problem[]): Prompt[] {
  return problems
    .flatMap(({ messages }) => {
      const [instruction, input] = messages[0]?.content.split(':\n') ?? []
      return instruction === undefined || input === undefined ? [] : [{ instruction, input }]
    })
    .toSorted((one, other) => other.input.length - one.input.length)
    .slice(0, NUM_TEXTS)
    .map((edit) => ({ form: 'edit', ...edit }))
}
