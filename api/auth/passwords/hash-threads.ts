import { Worker } from 'node:worker_threads'

import type { PasswordConfig } from '#shared/config/auth-policies.ts'
import { failure } from '#shared/errors.ts'

/** A request to a thread: hash a password with argon2id, or compare it with a hash of any kind. */
export type HashRequest =
  | { readonly password: string; readonly parameters: PasswordConfig['argon2'] }
  | { readonly password: string; readonly hash: string }

/** The answer of a thread: the new hash, or whether the password is right. */
export type HashReply = { readonly result: string | boolean } | { readonly failure: string }

/** Threads of low priority that hash passwords. */
interface HashThreads {
  hash(password: string, parameters: PasswordConfig['argon2']): Promise<string>
  verify(password: string, hash: string): Promise<boolean>
}

interface HashThread {
  readonly worker: Worker
  readonly pending: Map<number, (reply: HashReply) => void>
}

/**
 * Threads that start on first use, keep the process alive only while they compute, and are replaced
 * when one dies. The caller bounds the number of concurrent computations.
 */
export function createHashThreads(count: number): HashThreads {
  const threads: (HashThread | undefined)[] = Array.from({ length: count })
  let lastId = 0
  const ask = async (request: HashRequest): Promise<string | boolean> => {
    const index = leastBusy(threads)
    const thread = threads[index] ?? startThread(() => (threads[index] = undefined))
    threads[index] = thread
    lastId += 1
    const id = lastId
    const reply = await new Promise<HashReply>((resolve) => {
      thread.pending.set(id, resolve)
      thread.worker.ref()
      thread.worker.postMessage({ id, ...request })
    })
    if ('failure' in reply) {
      // The thread ran out of memory or died: the same request may succeed a moment later.
      throw failure.overloaded('Passwords cannot be checked at this moment, please retry.', {
        code: 'over_capacity',
        retryAfterSeconds: 1,
        cause: new Error(reply.failure),
      })
    }
    return reply.result
  }
  return {
    hash: async (password, parameters) => String(await ask({ password, parameters })),
    verify: async (password, hash) => (await ask({ password, hash })) === true,
  }
}

function leastBusy(threads: readonly (HashThread | undefined)[]): number {
  const loads = threads.map((thread) => thread?.pending.size ?? 0)
  return loads.indexOf(Math.min(...loads))
}

function startThread(onExit: () => void): HashThread {
  const worker = new Worker(new URL('./hash-thread.ts', import.meta.url))
  const pending: HashThread['pending'] = new Map()
  worker.on('message', ({ id, ...reply }: HashReply & { readonly id: number }) => {
    pending.get(id)?.(reply)
    pending.delete(id)
    if (pending.size === 0) worker.unref()
  })
  // Without a listener an error of a thread would end the process; the `exit` event that follows
  // rejects the waiting requests.
  worker.on('error', () => undefined)
  worker.on('exit', () => {
    onExit()
    for (const resolve of pending.values()) resolve({ failure: 'the hashing thread ended' })
    pending.clear()
  })
  worker.unref()
  return { worker, pending }
}
