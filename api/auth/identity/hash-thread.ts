import { getPriority, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'

import { hashArgon2id } from './argon2.ts'
import type { HashReply, HashRequest } from './hash-threads.ts'
import { verifyPasswordHash } from './password-hashes.ts'

// The entry of a thread that computes password hashes and nothing else.

const NICENESS = 10

// On Linux the priority belongs to the thread: a storm of sign-ins yields to everything else that
// this machine computes. Elsewhere it would be that of the whole process. Whoever was started with
// a lower one stays there: to rise takes a right, without which the thread would end.
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
