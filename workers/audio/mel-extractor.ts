import { Worker } from 'node:worker_threads'

import type { MelConfig } from './mel.ts'

/** Log-mel features computed in a thread of their own: 30 s of sound take some 100 ms. */
export interface ThreadedMel {
  extract(samples: Float32Array): Promise<Float32Array>
  close(): Promise<void>
}

/** Starts the thread with the first window. One that dies is replaced at the next. */
export function createThreadedMel(config: MelConfig): ThreadedMel {
  const waiting: {
    resolve: (features: Float32Array) => void
    reject: (reason: unknown) => void
  }[] = []
  let thread: Worker | undefined

  function start(): Worker {
    const started = new Worker(new URL('./mel-thread.ts', import.meta.url), { workerData: config })
    started.on('message', (features: Float32Array) => {
      waiting.shift()?.resolve(features)
      // An idle thread must not keep the process alive.
      if (waiting.length === 0) started.unref()
    })
    const lost = (reason: unknown): void => {
      if (thread !== started) return
      thread = undefined
      for (const { reject } of waiting.splice(0)) reject(reason)
    }
    started.on('error', lost)
    started.on('exit', (code) => lost(new Error(`the feature thread ended with code ${code}`)))
    return started
  }

  return {
    extract(samples) {
      thread ??= start()
      const running = thread
      return new Promise((resolve, reject) => {
        waiting.push({ resolve, reject })
        running.ref()
        running.postMessage(samples)
      })
    },
    async close() {
      await thread?.terminate()
    },
  }
}
