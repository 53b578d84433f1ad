import { describe, expect, it } from 'vitest'

import { getCapableModel } from '#api/inference/model-route.ts'
import type { Caller } from '#api/v1/request-context.ts'
import { parseCatalogue } from '#shared/catalogue.ts'

const CALLER = { modelIds: null } as Caller

describe('the purpose of a model in the catalogue', () => {
  it.each([
    ['audio', ['transcribe'], 'v1/audio/transcriptions', true],
    ['audio', ['transcribe'], 'v1/audio/translations', false],
    ['audio', ['translate'], 'v1/audio/transcriptions', false],
    ['audio', [], 'v1/audio/translations', true],
    ['image', ['generate'], 'v1/images/generations', true],
    ['image', ['generate'], 'v1/images/edits', false],
    ['image', ['generate', 'edit'], 'v1/images/variations', false],
    ['image', ['variation'], 'v1/images/generations', false],
    ['image', [], 'v1/images/edits', true],
  ] as const)(
    'a model of kind %s with %j at %s: %s',
    async (kind, capabilities, endpoint, isTaken) => {
      const catalogue = parseCatalogue({ models: [{ id: 'm', kind, source: 'x', capabilities }] })
      const found = getCapableModel({ catalogue }, CALLER, { name: 'm', kind, endpoint })
      if (isTaken) expect((await found).id).toBe('m')
      else
        await expect(found).rejects.toThrow(
          `The model \`m\` is not supported in the ${endpoint} endpoint.`,
        )
    },
  )
})
