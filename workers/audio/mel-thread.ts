import { parentPort, workerData } from 'node:worker_threads'

import { planLogMel, type MelConfig } from './mel.ts'

// Features of one window for each message, in the order in which they were asked for.
const extract = planLogMel(workerData as MelConfig)
parentPort?.on('message', (samples: Float32Array) => {
  const features = extract(samples)
  parentPort?.postMessage(features, [features.buffer as ArrayBuffer])
})
