import { describe, expect, it } from 'vitest'

import type { ChatMessage } from '#shared/contracts/completion.ts'
import { truncateChat } from '#workers/processors/prompt-truncation.ts'

import { runJob } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const ROLES = { s: 'system', u: 'user', a: 'assistant', t: 'tool' } as const

/** Messages by the first letters of their roles; each counts as one token. */
const messages = (letters: string): ChatMessage[] =>
  [...letters].map((letter, at) => ({ role: ROLES[letter as 's'], content: String(at) }))

/** The places of the messages that stay. */
async function kept(letters: string, room: number): Promise<string | undefined> {
  const chat = { form: 'chat' as const, messages: messages(letters) }
  const truncated = await truncateChat(chat, async (rest) =>
    rest.messages.length > room ? undefined : rest.messages,
  )
  expect(truncated?.droppedCount ?? 0).toBe(
    truncated === undefined ? 0 : letters.length - truncated.read.length,
  )
  return truncated?.read.map(({ content }) => content).join('')
}

describe('a truncated chat', () => {
  it.each([
    ['drops the oldest exchange', 'uauau', 3, '234'],
    ['drops as few as it can', 'uauauau', 5, '23456'],
    ['keeps its system messages', 'ssuauau', 5, '01456'],
    ['drops the results of tool calls with their call', 'uatauau', 3, '456'],
    ['keeps the last question and the last answer of a long run of tools', 'uatatat', 3, '056'],
    ['drops both before and behind the last question', 'uauatat', 3, '256'],
    ['never drops its last question', 'uau', 1, '2'],
    ['cannot be shorter than its last question', 'uau', 0, undefined],
    ['cannot be shorter than its system message and its question', 'suau', 1, undefined],
    ['of system messages alone has nothing to drop', 'ss', 1, undefined],
  ])('%s', async (_, letters, room, places) => {
    expect(await kept(letters, room)).toBe(places)
  })

  it('of a thousand messages is rendered only a few times', async () => {
    let renderings = 0
    const chat = { form: 'chat' as const, messages: messages('ua'.repeat(500)) }
    const truncated = await truncateChat(chat, async (rest) => {
      renderings += 1
      return rest.messages.length > 301 ? undefined : rest
    })
    expect(truncated?.droppedCount).toBe(700)
    expect(renderings).toBeLessThan(12)
  })
})

describe('a job with a chat that is too long', () => {
  const exchange = [
    { role: 'user' as const, content: 'x'.repeat(150) },
    { role: 'assistant' as const, content: 'yes' },
  ]
  const chat = { form: 'chat' as const, messages: [...exchange, ...exchange, exchange[0]] as const }
  const prompts = [{ ...chat, messages: chat.messages.flatMap((one) => one ?? []) }]

  it('is answered without its oldest messages if it may be truncated, and says so', async () => {
    const engine = scriptedEngine(babble)
    const truncated = prompts.map((prompt) => ({ ...prompt, isTruncated: true }))
    const answer = await runJob({ prompts: truncated }, { engine })
    expect(answer.droppedMessages).toBeGreaterThan(0)
    expect(answer.promptTokens).toBeLessThanOrEqual(256 - 16)
    await expect(runJob({ prompts }, { engine })).rejects.toMatchObject({
      code: 'context_length_exceeded',
    })
  })
})
