import { getPriority, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'

import { hashArgon2id } from './argon2.ts'
import type { HashReply, HashRequest } from './hash-threads.ts'
import { verifyPasswordHash } from './password-hashes.ts'

// The entry of a thread that only computes password hashes.

const NICENESS = 10

// On Linux the priority belongs to the thread, so that hashing yields to all other work of the
// machine. Elsewhere it would apply to the whole process. A process that was started with a lower
// priority keeps it, because raising it needs a privilege.
if (process.platform === 'linux' && getPriority() < NICENESS) setPriority(0, NICENESS)

parentPort?.on('message', ({ id, ...request }: HashRequest & { readonly id: number }) => {
  const reply = (fields: HashReply): void => parentPort?.postMessage({ id, ...fields })
  try {
    reply({ result: compute(request) })
  } catch (error) {
    reply({ failure: error instanceof Error ? error.message : 'the computation failed' })
  }
})

function compute(request: HashRequest): string | boolean {
  const { password } = request
  return 'hash' in request
    ? verifyPasswordHash(password, request.hash)
    : hashArgon2id(password, request.parameters)
}
