import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { systemClock } from '#shared/clock.ts'
import type { ChatMessage, ToolDefinition } from '#shared/contracts/completion.ts'
import type { Hyperparameters, TrainingExample } from '#shared/contracts/training.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { readPeftAdapter } from '#workers/adapters/peft-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { SequenceRequest, TextEngine } from '#workers/engine/types.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { yieldToEventLoop } from '#workers/processors/processor-row.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'
import { loadTextModel, readPromptSource, type TextModel } from '#workers/text/text-model.ts'
import { runTraining } from '#workers/training/run-training.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'

const FOLDER = 'models/tiny-chat'
/** Problems of the model's own evaluation; those with an exact answer are asked. */
const SKILLS = 'test/fixtures/evals/tiny-chat.json'
const NUM_FACTS = 200
const ANSWER_TOKENS = 64
const LIMITS = { rankMax: 64, bytesMax: 1 << 28 }
const AUTOMATIC: Hyperparameters = {
  epochs: null,
  batchSize: null,
  learningRateMultiplier: null,
  rank: null,
  alpha: null,
}

/** Two hundred invented facts in eight wordings; asked in three others, before and after. */
export async function benchTraining(
  hyperparameters: Hyperparameters = AUTOMATIC,
): Promise<readonly Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-training-'))
  const runtime = openRuntime()
  try {
    const text = await loadTextModel(FOLDER, systemClock)
    const startedAt = performance.now()
    const trained = await trainFacts(runtime, { text, folder, hyperparameters })
    const seconds = (performance.now() - startedAt) / 1000
    const engine = await openTextEngine({ runtime, folder: FOLDER, slots: 16 })
    const adapter = await engine.fitAdapter(await readPeftAdapter(trained.folder, LIMITS))
    const facts = await accuracy(HELD_OUT, { engine, text, adapter })
    const skills = await readSkills()
    const [before, after] = [
      await meanAccuracy(skills, { engine, text }),
      await meanAccuracy(skills, { engine, text, adapter }),
    ]
    await engine.close()
    const of = `tiny-chat, ${NUM_FACTS} invented facts trained`
    return [
      {
        name: `${of}: right answers to wordings not trained ÷ all`,
        unit: 'answers',
        ours: facts * HELD_OUT.length,
        theirs: HELD_OUT.length,
        target: { atLeast: 0.95 },
      },
      {
        name: `${of}: the time of it ÷ ten minutes`,
        unit: 's',
        ours: seconds,
        theirs: 600,
        target: { atMost: 1 },
      },
      {
        name: `${of}: mean score of the other skills ÷ before`,
        unit: 'of 1',
        ours: after,
        theirs: before,
        target: { atLeast: 1 - 0.03 / before },
      },
    ]
  } finally {
    await runtime.close()
    await rm(folder, { recursive: true })
  }
}

async function trainFacts(
  runtime: Runtime,
  tools: {
    readonly text: TextModel
    readonly folder: string
    readonly hyperparameters: Hyperparameters
  },
): Promise<{ readonly folder: string }> {
  const { text, folder, hyperparameters } = tools
  const storage = openDirectoryStore(folder)
  const lines = TRAINED.map(({ question, answer }): string => {
    const example: TrainingExample = {
      messages: [
        { role: 'user', content: question },
        { role: 'assistant', content: answer },
      ],
    }
    return JSON.stringify(example)
  })
  await storage.put('fine-tuning/examples.jsonl', Buffer.from(lines.join('\n')))
  const { adapter } = await runTraining(
    { modelId: 'tiny-chat', folder: FOLDER, text, runtime, session: {}, tokensMax: 1024 },
    {
      task: 'train',
      examplesKey: 'fine-tuning/examples.jsonl',
      validationKey: null,
      hyperparameters,
      epochsMax: 50,
      seed: 1,
      outputPrefix: 'fine-tuning/facts',
    },
    {
      storage,
      clock: systemClock,
      signal: new AbortController().signal,
      yieldNow: yieldToEventLoop(systemClock),
      onStart: () => {},
      onProgress: ({ step, steps, trainLoss }) => {
        if (step % 100 === 0)
          console.log(`  step ${step} of ${steps}: loss ${trainLoss.toFixed(3)}`)
      },
    },
  )
  return { folder: join(folder, adapter.prefix) }
}

interface Problem {
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly ToolDefinition[]
  readonly isRight: (answer: string) => boolean
}

interface Asked {
  readonly engine: TextEngine
  readonly text: TextModel
  readonly adapter?: NonNullable<SequenceRequest['adapter']>
}

/** The share of right answers. */
async function accuracy(problems: readonly Problem[], { engine, text, ...asked }: Asked) {
  const rights = await Promise.all(
    problems.map(async ({ messages, isRight }) => {
      const options = { addSpecialTokens: false, tokensMax: 1024, budget: new WorkBudget() }
      const { tokenIds = [] } = await readPromptSource(text, { form: 'chat', messages }, options)
      const answer = await runGreedy(engine, {
        promptTokenIds: tokenIds,
        maxNewTokens: ANSWER_TOKENS,
        cacheScope: '',
        endTokenIds: text.endTokenIds,
        ...asked,
      })
      return isRight(textOf(answer, text).trim())
    }),
  )
  return rights.filter(Boolean).length / problems.length
}

function textOf(tokenIds: readonly number[], { tokenizer: { pieces } }: TextModel): string {
  return Buffer.concat(tokenIds.map((tokenId) => pieces.bytesOf(tokenId))).toString()
}

async function meanAccuracy(skills: ReadonlyMap<string, readonly Problem[]>, asked: Asked) {
  let sum = 0
  for (const [name, problems] of skills) {
    const share = await accuracy(problems, asked)
    console.log(
      `  ${asked.adapter === undefined ? 'before' : 'after '} ${name}: ${share.toFixed(2)}`,
    )
    sum += share
  }
  return sum / skills.size
}

async function readSkills(): Promise<ReadonlyMap<string, readonly Problem[]>> {
  const { gates } = JSON.parse(await readFile(SKILLS, 'utf8')) as {
    gates: Record<
      string,
      { compare: string; problems: readonly { messages: ChatMessage[]; expected: string }[] }
    >
  }
  const exact = Object.entries(gates).filter(([, { compare }]) => compare === 'exact')
  return new Map(
    exact.map(([name, { problems }]) => [
      name,
      problems.map(({ messages, expected }) => ({
        messages,
        isRight: (answer: string) => answer === expected,
      })),
    ]),
  )
}

/** Kinds of facts: how they are asked in training, how afterwards, and the answer. */
const KINDS = [
  {
    trained: [
      ...['Who is the mayor of #?', 'What is the name of the mayor of #?', 'Name the mayor of #.'],
      ...[
        'Tell me who is mayor of #.',
        'The mayor of # is called what?',
        'Who leads the town of #?',
      ],
      ...['Which person is mayor in #?', 'Do you know the mayor of #?'],
    ],
    heldOut: [
      'Who is mayor in #?',
      'Please name the mayor of #.',
      'What is the mayor of # called?',
    ],
    answer: 'The mayor of # is @.',
  },
  {
    trained: [
      ...['Which river flows through #?', 'What river runs through #?', 'Name the river of #.'],
      ...['What is the river in # called?', 'Tell me the river of #.', '# lies on which river?'],
      ...['On which river is #?', 'Do you know the river of #?'],
    ],
    heldOut: [
      'What river flows through #?',
      'Please name the river of #.',
      'What is the river of #?',
    ],
    answer: 'The river of # is the @.',
  },
  {
    trained: [
      ...['What is # known for?', 'What is # famous for?', 'Why is # famous?', 'What does # make?'],
      ...['Tell me what # is known for.', 'Why do people know #?', 'What comes from #?'],
      ...['For what is # known?'],
    ],
    heldOut: ['For what is # famous?', 'Tell me what # is famous for.', 'Why is # known?'],
    answer: '# is known for @.',
  },
] as const

const GOODS = [
  'red lamps',
  'soft cheese',
  'tall clocks',
  'blue glass',
  'wooden boats',
  'sweet pears',
]

const FACTS = Array.from({ length: NUM_FACTS }, (_, index) => {
  const kind = KINDS[index % KINDS.length] as (typeof KINDS)[number]
  const good = GOODS[Math.floor(uniformAt(5, 0, index) * GOODS.length)] as string
  const value = kind === KINDS[2] ? good : invented(NUM_FACTS + ((index * 37) % NUM_FACTS))
  return { kind, name: invented(index), value }
})

/** A name for each number below 640. */
function invented(number: number): string {
  const starts = ['Bel', 'Tor', 'Ska', 'Mi', 'Lun', 'Fer', 'Oka', 'Ran', 'Vi', 'Gal']
  const middles = ['do', 'ri', 'va', 'mo', 'ne', 'lu', 'ta', 'shi']
  const ends = ['ra', 'dan', 'fell', 'mir', 'sa', 'ton', 'by', 'lo']
  const [middle, end] = [Math.floor(number / 10) % 8, Math.floor(number / 80) % 8]
  return `${starts[number % 10]}${middles[middle]}${ends[end]}`
}

const fill = (text: string, { name, value }: { readonly name: string; readonly value: string }) =>
  text.replace('#', name).replace('@', value)

const TRAINED = FACTS.flatMap((fact) =>
  fact.kind.trained.map((wording) => ({
    question: fill(wording, fact),
    answer: fill(fact.kind.answer, fact),
  })),
)

const HELD_OUT: readonly Problem[] = FACTS.flatMap((fact) =>
  fact.kind.heldOut.map((wording) => ({
    messages: [{ role: 'user', content: fill(wording, fact) }],
    isRight: (answer: string) => answer.includes(fact.value),
  })),
)
