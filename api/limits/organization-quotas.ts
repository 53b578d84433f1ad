import type { Clock } from '#shared/clock.ts'
import { NO_QUOTAS, type Quotas } from '#shared/db/schema/quotas.ts'
import type { Logger } from '#shared/logger.ts'

/** Older quotas are used once more while they are looked up again. */
const FRESH_MS = 1000
/** Requests wait for a lookup if the known quotas are older. */
const KNOWN_MS = 60_000
const ORGANIZATIONS_MAX = 10_000

interface Known {
  readonly quotas: Quotas
  readonly readAtMs: number
}

/**
 * Caches the quotas of organizations and looks each up at most once a second. While the database
 * is unavailable, the last known quotas apply.
 */
export function rememberQuotas(services: {
  readonly find: (organizationId: string) => Promise<Quotas | undefined>
  readonly clock: Clock
  readonly log: Logger
}): (organizationId: string) => Promise<Quotas> {
  const { find, clock, log } = services
  const known = new Map<string, Known>()
  const lookups = new Map<string, Promise<Quotas>>()
  const read = async (id: string): Promise<Quotas> => {
    const readAtMs = clock.monotonic()
    let quotas: Quotas
    try {
      quotas = (await find(id)) ?? NO_QUOTAS
    } catch (error) {
      log.warn(
        { operation: 'limits.quotas', err: error },
        'could not read the quotas of an organization; the last known ones apply',
      )
      quotas = known.get(id)?.quotas ?? NO_QUOTAS
    }
    known.delete(id)
    known.set(id, { quotas, readAtMs })
    const oldest = known.keys().next()
    if (known.size > ORGANIZATIONS_MAX && oldest.done !== true) known.delete(oldest.value)
    return quotas
  }
  const readOnce = (id: string): Promise<Quotas> => {
    const lookup = lookups.get(id) ?? read(id).finally(() => lookups.delete(id))
    lookups.set(id, lookup)
    return lookup
  }
  return async (id) => {
    const found = known.get(id)
    const ageMs = clock.monotonic() - (found?.readAtMs ?? -Infinity)
    if (found === undefined || ageMs > KNOWN_MS) return readOnce(id)
    if (ageMs > FRESH_MS) void readOnce(id)
    return found.quotas
  }
}
