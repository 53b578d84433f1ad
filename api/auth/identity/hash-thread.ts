import { setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'

import { hashRawSync } from '@node-rs/argon2'

import type { Argon2Kind, Argon2Reply, Argon2Request, Argon2Version } from './hash-threads.ts'

// The entry of a thread that computes password hashes and nothing else.

const NICENESS = 10

// The library's numbers, which it exports for compilers alone.
const ALGORITHMS: Readonly<Record<Argon2Kind, number>> = { d: 0, i: 1, id: 2 }
const VERSIONS: Readonly<Record<Argon2Version, number>> = { 16: 0, 19: 1 }

// On Linux the priority belongs to the thread: a storm of sign-ins yields to everything else that
// this machine computes. Elsewhere it would be that of the whole process.
if (process.platform === 'linux') setPriority(0, NICENESS)

parentPort?.on('message', ({ id, ...request }: Argon2Request & { readonly id: number }) => {
  const reply = (fields: Argon2Reply): void => parentPort?.postMessage({ id, ...fields })
  try {
    reply({ tag: compute(request) })
  } catch (error) {
    reply({ failure: error instanceof Error ? error.message : 'argon2 failed' })
  }
})

function compute({ kind, version, message, nonce, ...costs }: Argon2Request): Uint8Array {
  return hashRawSync(message, {
    algorithm: ALGORITHMS[kind],
    version: VERSIONS[version],
    salt: nonce,
    memoryCost: costs.memoryKib,
    timeCost: costs.passes,
    parallelism: costs.parallelism,
    outputLen: costs.tagLength,
  })
}
