import { argon2Sync } from 'node:crypto'
import { setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'

import type { Argon2Request, Argon2Reply } from './hash-threads.ts'

// The entry of a thread that computes password hashes and nothing else.

const NICENESS = 10

// On Linux the priority belongs to the thread: a storm of sign-ins yields to everything else that
// this machine computes. Elsewhere it would be that of the whole process.
if (process.platform === 'linux') setPriority(0, NICENESS)

parentPort?.on('message', ({ id, ...request }: Argon2Request & { readonly id: number }) => {
  const reply = (fields: Argon2Reply): void => parentPort?.postMessage({ id, ...fields })
  try {
    const { message, nonce, memoryKib, passes, parallelism, tagLength } = request
    const parameters = { message, nonce, memory: memoryKib, passes, parallelism, tagLength }
    reply({ tag: argon2Sync('argon2id', parameters) })
  } catch (error) {
    reply({ failure: error instanceof Error ? error.message : 'argon2 failed' })
  }
})
