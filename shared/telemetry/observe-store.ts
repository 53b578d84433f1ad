import { Histogram, type Registry } from 'prom-client'

import type { ObjectStore } from '#shared/storage/object-store.ts'

import { SECONDS_BUCKETS } from './registry.ts'
import { inChildSpan, type Tracing } from './tracing.ts'

const OPERATIONS = ['put', 'get', 'head', 'delete'] as const

type Operation = (typeof OPERATIONS)[number]

/** Measures and traces the operations of a store. Keys are not recorded. */
export function observeStore(
  store: ObjectStore,
  registry: Registry,
  tracing: Tracing,
): ObjectStore {
  const duration = new Histogram({
    name: 'millrace_object_store_duration_seconds',
    help: 'Operations of the object storage: until stored for put, until it answers for get.',
    labelNames: ['operation', 'outcome'],
    buckets: [...SECONDS_BUCKETS],
    registers: [registry],
  })
  // Rates need a series before its first event, so that the first failure is visible.
  for (const operation of OPERATIONS) {
    for (const outcome of ['ok', 'failed']) duration.zero({ operation, outcome })
  }
  const observed = async <T>(operation: Operation, work: () => Promise<T>): Promise<T> => {
    const stop = duration.startTimer({ operation })
    const span = { name: `object ${operation}`, kind: 'CLIENT' as const, attributes: {} }
    try {
      const result = await inChildSpan(tracing, span, work)
      stop({ outcome: 'ok' })
      return result
    } catch (error) {
      stop({ outcome: isMissing(error) ? 'missing' : 'failed' })
      throw error
    }
  }
  return {
    put: (key, body, options) => observed('put', () => store.put(key, body, options)),
    get: (key, range) => observed('get', () => store.get(key, range)),
    head: (key) => observed('head', () => store.head(key)),
    delete: (key) => observed('delete', () => store.delete(key)),
    list: (prefix) => store.list(prefix),
    check: () => store.check(),
    close: () => store.close(),
  }
}

function isMissing(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'kind' in error && error.kind === 'notFound'
}
