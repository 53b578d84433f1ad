import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'

import type { BatchDriver } from '#api/batches/driver.ts'

import { type BatchService, openBatchService } from './batch-service.ts'

/** The collaborators of every batch test. */
export interface BatchSuite {
  readonly service: BatchService
  readonly client: OpenAI
  /** Those that run; each test ends with none. */
  readonly drivers: BatchDriver[]
  /** Starts so many processes that work at the batches. */
  start(count?: number): void
}

/** Opens one service for the tests of a file; before each of them its requests echo their text. */
export function useBatches(): BatchSuite {
  let service: BatchService
  let client: OpenAI
  const drivers: BatchDriver[] = []
  beforeAll(async () => {
    service = await openBatchService()
    client = new OpenAI({ baseURL: service.baseURL, apiKey: service.apiKey, maxRetries: 0 })
  })
  beforeEach(() => {
    service.execute = async ({ body }) => ({ echo: (body as { text: string }).text })
  })
  afterEach(async () => {
    await Promise.all(drivers.splice(0).map((driver) => driver.stop()))
  })
  afterAll(() => service.close())
  return {
    get service() {
      return service
    },
    get client() {
      return client
    },
    drivers,
    start(count = 1) {
      for (let i = 0; i < count; i += 1) drivers.push(service.startDriver())
    },
  }
}
