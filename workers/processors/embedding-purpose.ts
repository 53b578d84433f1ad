import type { ModelOptions } from '#shared/catalogue-options.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import type { Encoder } from '#workers/embedding/encoder.ts'

/** The preparation of a request's texts. */
interface Purpose {
  readonly prefix: string
  /** The adapter of a model with several. */
  readonly taskId?: number
  /** Request fields without effect on this model. */
  readonly ignored?: readonly string[]
}

// The default of Jina's own service.
const TASK_USUAL = 'text-matching'
const ROLE_TASKS = { query: 'retrieval.query', passage: 'retrieval.passage', none: undefined }

/**
 * The prefix and adapter of a request: from the model's tasks, else the prefixes of the catalogue
 * or the model's files. Throws `invalidRequest` for a task that a model with tasks does not have.
 * Clients send the role with every request, so a model without roles ignores it.
 */
export function purposeOf(
  input: Pick<EmbedInput, 'role' | 'taskName'>,
  { tasks = [], prompts }: Partial<Pick<Encoder, 'tasks'>> & Pick<Encoder, 'prompts'>,
  options: Pick<ModelOptions, 'queryPrefix' | 'passagePrefix'>,
): Purpose {
  const { role, taskName } = input
  if (tasks.length > 0) return adapterOf(input, tasks)
  const { queryPrefix: query = prompts.query, passagePrefix: passage = prompts.passage } = options
  const isDistinguished = query !== undefined || passage !== undefined
  const named = (['query', 'passage'] as const).find((each) => ROLE_TASKS[each] === taskName)
  const chosen = role === 'none' && isDistinguished ? (named ?? role) : role
  const ignored = [
    ...(role !== 'none' && !isDistinguished ? ['input_type'] : []),
    ...(taskName !== undefined && chosen !== named ? ['task'] : []),
  ]
  const prefix = { query, passage, none: prompts.usual }[chosen] ?? ''
  return ignored.length === 0 ? { prefix } : { prefix, ignored }
}

function adapterOf(
  { role, taskName }: Pick<EmbedInput, 'role' | 'taskName'>,
  tasks: Encoder['tasks'],
): Purpose {
  const ofRole = ROLE_TASKS[role]
  const wanted = ofRole ?? taskName
  const usual = tasks.findIndex(({ name }) => name === TASK_USUAL)
  const taskId =
    wanted === undefined ? Math.max(usual, 0) : tasks.findIndex(({ name }) => name === wanted)
  const found = tasks[taskId]
  const isContradicted = ofRole !== undefined && taskName !== undefined && taskName !== ofRole
  if (found !== undefined && !isContradicted) return { prefix: found.instruction, taskId }
  const names = tasks.map(({ name }) => `'${name}'`).join(', ')
  throw failure.invalidRequest(
    `Invalid value: '${taskName ?? role}'. The tasks of this model are: ${names}.${isContradicted ? ` 'input_type' asks for '${ofRole}'.` : ''}`,
    { param: taskName === undefined ? 'input_type' : 'task', code: 'invalid_value' },
  )
}
