import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { systemClock } from '#shared/clock.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { preparePrompt, type PreparedPrompt } from '#workers/processors/completion-prompt.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { proposeByPromptLookup } from '#workers/text/prompt-lookup.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { takeTurns } from './rounds.ts'

const FOLDER = 'models/tiny-chat'
const INPUTS = [
  'The little dog wnet to the park and played with a red ball all day.',
  'My sister likes to read boks about old ships and the people on them.',
  'We ate bread and soup, then we walked home in the raein with our friends.',
  'The teacher opened the window becuase the room was very warm in the summer.',
]
const TIMES_PER_ROUND = 20

/** Edits one after another: with the prompt's own words guessed ahead, against without. */
export async function benchEdits(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: 16 })
  try {
    const model = createCompletionModel(engine, await loadTextModel(FOLDER, systemClock))
    const instruction = 'Fix the spelling mistakes.'
    const prompts: PreparedPrompt[] = []
    for (const input of INPUTS) {
      prompts.push(await preparePrompt(model, { form: 'edit', instruction, input }, null))
    }
    const edit = ({ tokenIds, maxNewTokens }: PreparedPrompt, isGuessing: boolean) =>
      runGreedy(engine, {
        promptTokenIds: tokenIds,
        maxNewTokens,
        endTokenIds: model.text.endTokenIds,
        // A scope of its own: no run starts from what another one left in the cache.
        cacheScope: randomUUID(),
        ...(isGuessing && { propose: proposeByPromptLookup }),
      })
    for (const prompt of prompts) {
      assert.deepEqual(await edit(prompt, true), await edit(prompt, false), 'guessing changed it')
    }
    const speed = async (isGuessing: boolean): Promise<number> => {
      const startedAt = performance.now()
      let tokens = 0
      for (let time = 0; time < TIMES_PER_ROUND; time += 1) {
        for (const prompt of prompts) tokens += (await edit(prompt, isGuessing)).length
      }
      return (tokens * 1000) / (performance.now() - startedAt)
    }
    const found = await takeTurns(
      () => speed(true),
      () => speed(false),
    )
    const name = 'edits of tiny-chat, one stream: n-gram speculation ÷ plain, same tokens'
    return [{ name, unit: 'tokens/s', ...found, target: { atLeast: 1.8 } }]
  } finally {
    await engine.close()
    await runtime.close()
  }
}
