import { describe, expect, it } from 'vitest'

import type { WorkerInfo } from '#api/inference/services.ts'

import { openSurface } from './surface.ts'

const served = (kind: 'completion' | 'embedding', modelId: string, contextLength?: number) => ({
  kind,
  modelId,
  isReady: true,
  ...(contextLength !== undefined && { contextLength }),
})
// The second is of a version that does not say.
const WORKERS: readonly WorkerInfo[] = [
  { queues: [served('completion', 'tiny-chat', 4096), served('embedding', 'tiny-embed', 256)] },
  { queues: [served('completion', 'tiny-chat'), served('completion', 'org/base:v1')] },
  { queues: [served('completion', 'tiny-chat', 2048)] },
]

describe('max_model_len', () => {
  it('is the least that living workers report, and absent if none reports it', async () => {
    let workers = WORKERS
    const surface = await openSurface(undefined, {
      workersSeen: () => workers,
      workers: () => Promise.reject(new Error('a listing asks nobody')),
    })
    const list = async () => {
      const { data } = (await surface.get('/v1/models')).json()
      return data
        .filter((model: object) => 'max_model_len' in model)
        .map((model: { id: string; max_model_len: number }) => [model.id, model.max_model_len])
    }
    expect(await list()).toEqual([
      ['tiny-chat', 2048],
      ['tiny-embed', 256],
    ])
    for (const id of ['tiny-chat', 'gpt-3.5-turbo']) {
      expect((await surface.get(`/v1/models/${id}`)).json().max_model_len).toBe(2048)
    }
    expect((await surface.get('/v1/models/org/base:v1')).json()).not.toHaveProperty('max_model_len')
    workers = WORKERS.slice(1, 2)
    expect(await list()).toEqual([])
    await surface.app.close()
  })
})

describe('sampling_defaults', () => {
  it('are those that a living worker reports, and absent if the model has none', async () => {
    const samplingDefaults = { temperature: 0.6, topP: 0.9, topK: 20, repetitionPenalty: 1.1 }
    const queue = { ...served('completion', 'tiny-chat', 2048), samplingDefaults }
    const surface = await openSurface(undefined, {
      workersSeen: () => [{ queues: [queue, served('completion', 'org/base:v1')] }],
    })
    const shown = { temperature: 0.6, top_p: 0.9, top_k: 20, repetition_penalty: 1.1 }
    const { data } = (await surface.get('/v1/models')).json()
    const listed = data.filter((model: object) => 'sampling_defaults' in model)
    expect(listed).toMatchObject([{ id: 'tiny-chat', sampling_defaults: shown }])
    const one = await surface.get('/v1/models/tiny-chat')
    expect(one.json().sampling_defaults).toEqual(shown)
    await surface.app.close()
  })
})
