import { Worker } from 'node:worker_threads'

import { CancelledError, failure } from '#shared/errors.ts'

import type { PreparationResults, PreparationTask, ThreadReply } from './preparation-task.ts'
import type { WorkBudget } from './work-budget.ts'

const IDLE_MS = 60_000
const WAITING_MAX = 256

/** The limits of a task, and the error of a request that exceeds them. */
interface PreparationLimits {
  /** Measured from the moment when the thread starts the task. */
  readonly deadlineMs: number
  readonly memoryMibMax: number
  /** How long an idle thread waits for the next task. */
  readonly idleMs?: number
  readonly refusal: { readonly message: string; readonly code: string }
}

/** Limits of grammars. The deadline is ten times the duration of a request's budget. */
export const GRAMMAR_LIMITS: PreparationLimits = {
  deadlineMs: 10_000,
  memoryMibMax: 512,
  refusal: {
    message: 'The schema takes too much time or memory to prepare.',
    code: 'invalid_json_schema',
  },
}

/** Limits of prompts: the thread also holds the tokenizer, which it loads first. */
export const PROMPT_LIMITS: PreparationLimits = {
  deadlineMs: 30_000,
  memoryMibMax: 2048,
  refusal: {
    message: 'The prompt takes too much time or memory to prepare.',
    code: 'prompt_too_complex',
  },
}

/** Limits of images: a large one takes a second or two. */
export const IMAGE_LIMITS: PreparationLimits = {
  deadlineMs: 30_000,
  memoryMibMax: 1024,
  refusal: {
    message: 'The image takes too much time or memory to prepare.',
    code: 'invalid_image',
  },
}

type TaskResult = PreparationResults[PreparationTask['kind']]

interface RunOptions {
  /** The request field that a refusal names. */
  readonly param: string
  /** Charged for the steps of the task. */
  readonly budget: WorkBudget
  readonly signal?: AbortSignal | undefined
}

interface Waiting extends RunOptions {
  readonly task: PreparationTask
  readonly resolve: (result: TaskResult) => void
  readonly reject: (error: unknown) => void
}

/**
 * Prepares requests in a thread that starts on first use and ends when idle. A task that exceeds
 * the deadline or the memory limit, or whose request is cancelled, ends its thread; the next task
 * starts a new one.
 */
export class PreparationPool {
  readonly #limits: PreparationLimits
  readonly #script: URL
  readonly #waiting: Waiting[] = []
  #thread: Worker | undefined
  #isBusy = false
  #idle: NodeJS.Timeout | undefined

  constructor(
    limits: PreparationLimits,
    script = new URL('./preparation-thread.ts', import.meta.url),
  ) {
    this.#limits = limits
    this.#script = script
  }

  /**
   * Runs a task after earlier ones. Throws `invalidRequest` when it exceeds the limits, and an
   * `Error` when the thread fails in another way, which the request did not cause.
   */
  async run<Kind extends PreparationTask['kind']>(
    task: Extract<PreparationTask, { readonly kind: Kind }>,
    options: RunOptions,
  ): Promise<PreparationResults[Kind]> {
    if (this.#waiting.length >= WAITING_MAX) {
      throw failure.overloaded('Too many requests are being prepared, please retry.', {
        code: 'over_capacity',
        retryAfterSeconds: 1,
      })
    }
    const result = await new Promise<TaskResult>((resolve, reject) => {
      this.#waiting.push({ task, ...options, resolve, reject })
      void this.#advance()
    })
    return result as PreparationResults[Kind]
  }

  async #advance(): Promise<void> {
    if (this.#isBusy) return
    const next = this.#waiting.shift()
    if (next === undefined) return this.#endWhenIdle()
    clearTimeout(this.#idle)
    this.#isBusy = true
    try {
      next.resolve(await this.#run(next))
    } catch (error) {
      next.reject(error)
    } finally {
      this.#isBusy = false
      void this.#advance()
    }
  }

  async #run({ task, param, budget, signal }: Waiting): Promise<TaskResult> {
    if (isAborted(signal)) throw new CancelledError()
    const thread = this.#thread ?? this.#start()
    thread.ref()
    const deadline = AbortSignal.timeout(this.#limits.deadlineMs)
    const stop = signal === undefined ? deadline : AbortSignal.any([signal, deadline])
    const reply = await ask(thread, task, stop)
    if ('result' in reply) {
      thread.unref()
      budget.charge(Math.min(reply.steps, budget.left))
      return reply.result
    }
    if ('refusal' in reply) {
      thread.unref()
      const { message, param: field, code } = reply.refusal
      throw failure.invalidRequest(message, {
        ...(field && { param: field }),
        ...(code && { code }),
      })
    }
    if (this.#thread === thread) this.#thread = undefined
    await thread.terminate()
    if (isAborted(signal)) throw new CancelledError()
    if ('failure' in reply) throw new Error(`the preparation thread failed: ${reply.failure}`)
    const { message, code } = this.#limits.refusal
    throw failure.invalidRequest(message, { param, code, cause: new Error(reply.excess) })
  }

  #start(): Worker {
    const thread = new Worker(this.#script, {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.memoryMibMax },
    })
    // Without a listener an error of a thread would end the process; `exit` follows.
    thread.on('error', () => undefined)
    thread.once('exit', () => {
      if (this.#thread === thread) this.#thread = undefined
    })
    this.#thread = thread
    return thread
  }

  #endWhenIdle(): void {
    const end = (): void => {
      const thread = this.#thread
      // A task that arrives while the thread ends starts a new one.
      this.#thread = undefined
      void thread?.terminate()
    }
    this.#idle = setTimeout(end, this.#limits.idleMs ?? IDLE_MS).unref()
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true
}

/** The result of a task: an excess exceeds a limit, a failure is a defect. */
type Outcome = ThreadReply | { readonly excess: string }

const OUT_OF_MEMORY = 'ERR_WORKER_OUT_OF_MEMORY'

function ask(thread: Worker, task: PreparationTask, stop: AbortSignal): Promise<Outcome> {
  return new Promise((resolve) => {
    const settle = (reply: Outcome): void => {
      thread.off('message', settle).off('error', onError).off('exit', onExit)
      stop.removeEventListener('abort', onAbort)
      resolve(reply)
    }
    const onError = (error: NodeJS.ErrnoException): void =>
      settle(
        error.code === OUT_OF_MEMORY ? { excess: error.message } : { failure: String(error.stack) },
      )
    const onExit = (): void => settle({ failure: 'it ended by itself' })
    const onAbort = (): void => settle({ excess: 'the deadline has passed' })
    thread.on('message', settle).on('error', onError).on('exit', onExit)
    stop.addEventListener('abort', onAbort, { once: true })
    thread.postMessage(task)
  })
}
