import { Worker } from 'node:worker_threads'

import { failure } from '#shared/errors.ts'

/** Which of the three functions of RFC 9106 it is. */
export type Argon2Kind = 'd' | 'i' | 'id'

/** Of the function, as the text forms of hashes state it. */
export type Argon2Version = 16 | 19

/** What a computation takes, and the bytes that come out. */
export interface Argon2Costs {
  readonly memoryKib: number
  readonly passes: number
  readonly parallelism: number
  readonly tagLength: number
}

/** One computation. */
export interface Argon2Request extends Argon2Costs {
  readonly kind: Argon2Kind
  readonly version: Argon2Version
  readonly message: string
  readonly nonce: Uint8Array
}

/** What a thread answers. */
export type Argon2Reply = { readonly tag: Uint8Array } | { readonly failure: string }

/** Computes argon2 on a thread of low priority. */
export type ComputeArgon2 = (request: Argon2Request) => Promise<Buffer>

interface HashThread {
  readonly worker: Worker
  readonly pending: Map<number, (reply: Argon2Reply) => void>
}

/**
 * Threads that start at the first need, keep the process alive only while they compute, and are replaced when one
 * dies. The caller bounds how many computations there are at once.
 */
export function createHashThreads(count: number): ComputeArgon2 {
  const threads: (HashThread | undefined)[] = Array.from({ length: count })
  let lastId = 0
  return async (request) => {
    const index = leastBusy(threads)
    const thread = threads[index] ?? startThread(() => (threads[index] = undefined))
    threads[index] = thread
    lastId += 1
    const id = lastId
    const reply = await new Promise<Argon2Reply>((resolve) => {
      thread.pending.set(id, resolve)
      thread.worker.ref()
      thread.worker.postMessage({ id, ...request })
    })
    if ('failure' in reply) {
      // Memory ran out, or a thread did: the same request may well succeed a moment later.
      throw failure.overloaded('Passwords cannot be checked at this moment, please retry.', {
        ...{ code: 'over_capacity', retryAfterSeconds: 1, cause: new Error(reply.failure) },
      })
    }
    return Buffer.from(reply.tag)
  }
}

function leastBusy(threads: readonly (HashThread | undefined)[]): number {
  const loads = threads.map((thread) => thread?.pending.size ?? 0)
  return loads.indexOf(Math.min(...loads))
}

function startThread(onExit: () => void): HashThread {
  const worker = new Worker(new URL('./hash-thread.ts', import.meta.url))
  const pending: HashThread['pending'] = new Map()
  worker.on('message', ({ id, ...reply }: Argon2Reply & { readonly id: number }) => {
    pending.get(id)?.(reply)
    pending.delete(id)
    if (pending.size === 0) worker.unref()
  })
  // Without a listener an error of a thread would end the process; `exit` follows and tells everybody.
  worker.on('error', () => undefined)
  worker.on('exit', () => {
    onExit()
    for (const resolve of pending.values()) resolve({ failure: 'the hashing thread ended' })
    pending.clear()
  })
  worker.unref()
  return { worker, pending }
}
