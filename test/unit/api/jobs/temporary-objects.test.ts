import { Readable } from 'node:stream'

import { describe, expect } from 'vitest'

import { HeldBytes } from '#api/jobs/held-bytes.ts'
import { TemporaryObjects } from '#api/jobs/temporary-objects.ts'
import { createLogger } from '#shared/logger.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'

const BYTES = 1000

describe('the temporary objects of unfinished requests', () => {
  it('have a bounded number of bytes together, and leave room for other organizations', async ({
    folder,
  }) => {
    const store = await openObjectStore({ driver: 'directory', path: folder })
    const temporaryBytes = new HeldBytes(12 * BYTES)
    const services = { store, log: createLogger({ level: 'silent' }), temporaryBytes }
    const open = (organizationId: string) => new TemporaryObjects(services, organizationId)
    const requests = Array.from({ length: 6 }, () => open('one'))
    for (const request of requests) await request.put(Buffer.alloc(BYTES))
    const refused = { kind: 'rateLimited', code: 'rate_limit_exceeded' }
    await expect(open('one').put(Buffer.alloc(BYTES))).rejects.toMatchObject(refused)
    const streamed = Readable.from([Buffer.alloc(BYTES / 2), Buffer.alloc(BYTES)])
    await expect(open('one').put(streamed)).rejects.toMatchObject(refused)
    await open('two').put(Buffer.alloc(BYTES))
    const huge = open('three').put(Buffer.alloc(7 * BYTES))
    await expect(huge).rejects.toMatchObject({ kind: 'tooLarge' })
    for (const request of requests) await request.discard()
    await open('one').put(Readable.from([Buffer.alloc(4 * BYTES)]))
  })
})
