import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'

import { systemClock } from '#shared/clock.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import {
  type CompletionModel,
  createCompletionModel,
} from '#workers/processors/completion-model.ts'
import { type PreparedPrompt, preparePrompt } from '#workers/processors/completion-prompt.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { EditFollower } from '#workers/text/prompt-lookup.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

const FOLDER = 'models/tiny-chat'
// Held-out sentences with a few broken letters, of the kind that the model was made for.
const PROBLEMS = 'test/fixtures/evals/tiny-chat.json'
const NUM_EDITS = 12
const TIMES_PER_ROUND = 8
const SPACE = 0x20

/** Edits one after another: with the prompt's own words guessed ahead, against without. */
export async function benchEdits(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: 16 })
  try {
    const model = createCompletionModel(engine, await loadTextModel(FOLDER, systemClock))
    const prompts: PreparedPrompt[] = []
    for (const edit of await readEdits()) {
      prompts.push(await preparePrompt(model, { form: 'edit', ...edit }, null))
    }
    const edit = createEdit(engine, model)
    for (const prompt of prompts) {
      assert.deepEqual(await edit(prompt, true), await edit(prompt, false), 'guessing changed it')
    }
    // Reading the prompt costs both the same and is left out: from the first token to the end.
    const speed = async (isGuessing: boolean): Promise<number> => {
      let tokens = 0
      let durationMs = 0
      for (let time = 0; time < TIMES_PER_ROUND; time += 1) {
        for (const prompt of prompts) {
          let firstAt = 0
          const answer = await edit(prompt, isGuessing, () => {
            firstAt ||= performance.now()
          })
          durationMs += performance.now() - firstAt
          tokens += answer.length - 1
        }
      }
      return (tokens * 1000) / durationMs
    }
    const found = await alternate(
      () => speed(true),
      () => speed(false),
    )
    const name =
      'edits of tiny-chat, one stream: tokens guessed along the original ÷ plain, same tokens'
    return [{ name, unit: 'tokens/s', ...found, target: { atLeast: 2 } }]
  } finally {
    await engine.close()
    await runtime.close()
  }
}

/** Runs one edit, with the original's words guessed ahead or without. */
function createEdit(engine: TextEngine, model: CompletionModel) {
  const { pieces } = model.text.tokenizer
  const isWordStart = (tokenId: number) => pieces.bytesOf(tokenId)[0] === SPACE
  const follow = ({ tokenIds, originalStart }: PreparedPrompt) => {
    assert(originalStart !== undefined, 'the original was not found in the prompt')
    const follower = new EditFollower({ promptTokenIds: tokenIds, originalStart, isWordStart })
    return (ids: readonly number[]) => follower.propose(ids)
  }
  return (prompt: PreparedPrompt, isGuessing: boolean, onToken?: () => void) =>
    runGreedy(engine, {
      promptTokenIds: prompt.tokenIds,
      maxNewTokens: prompt.maxNewTokens,
      endTokenIds: model.text.endTokenIds,
      // A scope of its own: no run starts from what another one left in the cache.
      cacheScope: randomUUID(),
      ...(isGuessing && { propose: follow(prompt) }),
      ...(onToken && { onToken }),
    })
}

/** The longest of the spelling problems that are put as an instruction, a colon and a text. */
async function readEdits() {
  const { gates } = JSON.parse(await readFile(PROBLEMS, 'utf8')) as {
    gates: { spelling: { problems: { messages: { content: string }[] }[] } }
  }
  return gates.spelling.problems
    .flatMap(({ messages }) => {
      const [instruction, input] = messages[0]?.content.split(':\n') ?? []
      return instruction === undefined || input === undefined ? [] : [{ instruction, input }]
    })
    .toSorted((one, other) => other.input.length - one.input.length)
    .slice(0, NUM_EDITS)
}
