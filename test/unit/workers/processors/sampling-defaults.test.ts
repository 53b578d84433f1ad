import { describe, expect, it } from 'vitest'

import { BASE, runJob, text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const RANDOM = { ...BASE.sampling, temperature: 1, seed: 3 }

async function answer(fields: object, samplingDefaults: object): Promise<readonly number[]> {
  const { result } = await runJob(fields, {
    engine: scriptedEngine(babble),
    text: { ...text, samplingDefaults },
  })
  return result.candidates[0]?.tokenIds ?? []
}

describe('sampling parameters about which a request is silent', () => {
  it('are those of the model', async () => {
    const greedy = await answer({}, {})
    const free = await answer({ sampling: RANDOM }, {})
    expect(free).not.toEqual(greedy)
    const silent = { sampling: RANDOM, unsetSampling: ['temperature', 'topP'] }
    expect(await answer(silent, { temperature: 0 })).toEqual(greedy)
    expect(await answer(silent, {})).toEqual(free)
  })

  it('are the only ones that the model sets', async () => {
    const free = await answer({ sampling: RANDOM }, {})
    expect(await answer({ sampling: RANDOM }, { temperature: 0 })).toEqual(free)
    const silent = { sampling: RANDOM, unsetSampling: ['topK'] }
    expect(await answer(silent, { temperature: 0, topK: 1 })).not.toEqual(free)
    expect(await answer(silent, { temperature: 0 })).toEqual(free)
  })
})
