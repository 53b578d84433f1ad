import { describe, expect, it } from 'vitest'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { createLogger } from '#shared/logger.ts'
import { MODEL_RESIDENCY, Residency, type ResidentModel } from '#workers/models/residency.ts'

const log = createLogger({ level: 'silent' })
const named = (id: string): CatalogueModel => ({
  id,
  kind: 'completion',
  source: 'none',
  aliases: [],
  ownedBy: 'test',
  created: 0,
  capabilities: [],
  options: {},
})

function openResidency(bytesMax: number, failures = 0) {
  const events: string[] = []
  let failuresLeft = failures
  const residency = new Residency<ResidentModel>({
    ...MODEL_RESIDENCY,
    bytesMax,
    log,
    async open({ id }) {
      events.push(`open ${id}`)
      if (failuresLeft-- > 0) throw new Error('broken file')
      return { bytes: 10, close: async () => void events.push(`close ${id}`) }
    },
  })
  return { residency, events }
}

describe('residency', () => {
  it('opens a model once for all who ask at the same time', async () => {
    const { residency, events } = openResidency(0)
    await Promise.all([residency.lease(named('a')), residency.lease(named('a'))])
    expect(events).toEqual(['open a'])
  })

  it('evicts the model that was idle the longest', async () => {
    const { residency, events } = openResidency(25)
    for (const id of ['a', 'b', 'a']) (await residency.lease(named(id))).release()
    await residency.lease(named('c'))
    expect(events).toEqual(['open a', 'open b', 'open c', 'close b'])
  })

  it('keeps leased models and refuses one for which there is no room', async () => {
    const { residency } = openResidency(15)
    await residency.lease(named('a'))
    await expect(residency.lease(named('b'))).rejects.toMatchObject({ kind: 'overloaded' })
    expect(residency.find(named('a'))).toBeDefined()
  })

  it('tries again after a failed load', async () => {
    const { residency, events } = openResidency(0, 1)
    await expect(residency.lease(named('a'))).rejects.toThrow('broken file')
    await residency.lease(named('a'))
    expect(events).toEqual(['open a', 'open a'])
  })
})
