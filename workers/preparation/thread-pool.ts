import { Worker } from 'node:worker_threads'

import { CancelledError, failure } from '#shared/errors.ts'

import type { GrammarData } from '../sampling/constraint/grammar-data.ts'

const DEADLINE_MS = 10_000 // ten times what the budget of a request takes
const IDLE_MS = 60_000
const MEMORY_MIB_MAX = 512
const WAITING_MAX = 256

/** What a thread answers. */
export type ThreadReply =
  | { readonly grammar: GrammarData }
  | { readonly refusal: { readonly message: string; param: string | null; code: string | null } }
  | { readonly failure: string }

interface Task {
  readonly plan: string
  readonly param: string
  readonly signal: AbortSignal | undefined
  readonly resolve: (grammar: GrammarData) => void
  readonly reject: (error: unknown) => void
}

/**
 * Compiles grammars in a thread that starts at the first need and ends when idle. A task that
 * exceeds the deadline or the memory limit, or whose request is cancelled, ends its thread; the
 * next task gets a new one.
 */
export class PreparationPool {
  readonly #waiting: Task[] = []
  #thread: Worker | undefined
  #isBusy = false
  #idle: NodeJS.Timeout | undefined

  /** `param` is the request field that a refusal names. */
  compile(
    plan: string,
    { param, signal }: { readonly param: string; readonly signal?: AbortSignal | undefined },
  ): Promise<GrammarData> {
    if (this.#waiting.length >= WAITING_MAX) {
      throw failure.overloaded('Too many schemas are being prepared, please retry.', {
        ...{ code: 'over_capacity', retryAfterSeconds: 1 },
      })
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ plan, param, signal, resolve, reject })
      void this.#advance()
    })
  }

  async #advance(): Promise<void> {
    if (this.#isBusy) return
    const task = this.#waiting.shift()
    if (task === undefined) return this.#endWhenIdle()
    clearTimeout(this.#idle)
    this.#isBusy = true
    try {
      task.resolve(await this.#run(task))
    } catch (error) {
      task.reject(error)
    } finally {
      this.#isBusy = false
      void this.#advance()
    }
  }

  async #run({ plan, param, signal }: Task): Promise<GrammarData> {
    if (isAborted(signal)) throw new CancelledError()
    const thread = this.#thread ?? this.#start()
    thread.ref()
    const deadline = AbortSignal.timeout(DEADLINE_MS)
    const stop = signal === undefined ? deadline : AbortSignal.any([signal, deadline])
    const reply = await ask(thread, plan, stop)
    if ('grammar' in reply) {
      thread.unref()
      return reply.grammar
    }
    if ('refusal' in reply) {
      thread.unref()
      const { message, param: field, code } = reply.refusal
      throw failure.invalidRequest(message, {
        ...(field && { param: field }),
        ...(code && { code }),
      })
    }
    this.#thread = undefined
    await thread.terminate()
    if (isAborted(signal)) throw new CancelledError()
    throw failure.invalidRequest('The schema takes too much time or memory to prepare.', {
      ...{ param, code: 'invalid_json_schema', cause: new Error(reply.failure) },
    })
  }

  #start(): Worker {
    const thread = new Worker(new URL('./preparation-thread.ts', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MIB_MAX },
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
    this.#idle = setTimeout(() => void this.#thread?.terminate(), IDLE_MS).unref()
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true
}

function ask(thread: Worker, plan: string, stop: AbortSignal): Promise<ThreadReply> {
  return new Promise((resolve) => {
    const settle = (reply: ThreadReply): void => {
      thread.off('message', settle).off('exit', onExit)
      stop.removeEventListener('abort', onAbort)
      resolve(reply)
    }
    const onExit = (): void => settle({ failure: 'the thread ended' })
    const onAbort = (): void => settle({ failure: 'the time is over' })
    thread.on('message', settle).on('exit', onExit)
    stop.addEventListener('abort', onAbort, { once: true })
    thread.postMessage(plan)
  })
}
