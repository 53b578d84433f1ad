import { PollLoop } from '#api/v1/poll-loop.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { EndpointRow } from '#shared/db/schema/webhooks.ts'
import type { Logger } from '#shared/logger.ts'
import { createGuardedFetch, OutgoingError } from '#shared/net/guarded-fetch.ts'
import { type KeepAliveAgents, openKeepAliveAgents } from '#shared/net/keep-alive-agents.ts'
import { createHostResolver } from '#shared/net/resolve-host.ts'
import { signWebhook } from '#shared/net/standard-webhooks.ts'

import type { Secrets } from './secrets.ts'
import type { Attempt, DueDelivery, EndedAttempt, WebhookStore } from './webhook-store.ts'

interface SenderServices {
  readonly webhooks: WebhookStore
  readonly secrets: Secrets
  readonly clock: Clock
  readonly log: Logger
  /** Whether endpoints may have addresses outside the public internet. */
  readonly allowsPrivateAddresses: boolean
  /** Called for each endpoint that is disabled because its deliveries fail. */
  readonly onDisabled: (endpoint: EndpointRow) => void
}

/** Attempts that one process has in flight. */
const IN_FLIGHT_MAX = 128
const CLAIM_MAX = 64
/**
 * A receiver that does not answer occupies less than twice this many sockets, and delays no other
 * receiver.
 */
const PER_ENDPOINT_MAX = 8
const PER_ENDPOINT_AT_ONCE = 8
/** An organization whose receivers all hang occupies less than twice this many. */
const PER_ORGANIZATION_MAX = 32
/**
 * Beyond this number only endpoints whose last attempt succeeded are tried, because the others may
 * hang.
 */
const FAILING_MAX = 32
const TIMEOUT_MS = 15_000
const LEASE_SECONDS = 30
const ANSWER_BYTES_MAX = 64 * 1024
/** Attempts that end within this time are recorded together, and as many are claimed. */
const PAUSE_MS = 20
const DISABLE_INTERVAL_MS = 1000
/** Idle connections close before common servers close them, after five seconds. */
const CONNECTIONS = {
  idlePerHostMax: PER_ENDPOINT_MAX,
  idleMax: IN_FLIGHT_MAX,
  idleMs: 4000,
  ageMs: 60_000,
}
const RETRY_MS_MIN = 5000
const RETRY_MS_MAX = 6 * 3_600_000
const RETRIED_FOR_MS = 3 * 86_400_000

/**
 * Delivers webhooks together with all other processes: at least once, with exponential backoff for
 * three days. Each endpoint and each organization has a limited number of attempts in flight, and
 * failing endpoints share a part of the total, so that receivers that hang delay no others. An
 * endpoint whose deliveries have all failed for a day is disabled.
 */
export class WebhookSender {
  readonly #services: SenderServices
  readonly #loop: PollLoop
  readonly #agents: KeepAliveAgents
  readonly #fetch: ReturnType<typeof createGuardedFetch>
  /** Attempts whose results are not recorded yet, each as its own object. */
  readonly #inFlight = new Set<DueDelivery>()
  readonly #attempts = new Set<Promise<void>>()
  #ended: EndedAttempt[] = []
  #disabledAtMs = Number.NEGATIVE_INFINITY

  constructor(services: SenderServices) {
    this.#services = services
    this.#agents = openKeepAliveAgents(CONNECTIONS)
    this.#fetch = createGuardedFetch({
      timeoutMs: TIMEOUT_MS,
      bodyBytesMax: ANSWER_BYTES_MAX,
      allowsPrivateAddresses: services.allowsPrivateAddresses,
      // Organizations choose these names, so they may resolve to any address.
      resolve: createHostResolver({ asksSystem: services.allowsPrivateAddresses }),
      agents: this.#agents,
    })
    this.#loop = new PollLoop(() => this.#look(), { pauseMs: PAUSE_MS })
  }

  /** Looks for due deliveries as soon as possible. */
  wake(): void {
    this.#loop.wake()
  }

  /** Stops new attempts, waits for those in flight and records them. */
  async stop(): Promise<void> {
    await this.#loop.stop()
    await Promise.all(this.#attempts)
    await this.#settle()
    this.#agents.destroy()
  }

  async #look(): Promise<boolean> {
    await this.#settle()
    const { webhooks, log } = this.#services
    try {
      await this.#disableFailing()
      const limit = Math.min(CLAIM_MAX, IN_FLIGHT_MAX - this.#inFlight.size)
      if (limit === 0) return false
      const due = await webhooks.claim({
        limit,
        leaseSeconds: LEASE_SECONDS,
        perEndpointMax: PER_ENDPOINT_AT_ONCE,
        busy: this.#busy(({ id }) => id, PER_ENDPOINT_MAX),
        perOrganizationMax: PER_ORGANIZATION_MAX,
        busyOrganizations: this.#busy(({ organizationId }) => organizationId, PER_ORGANIZATION_MAX),
        triesFailing: this.#failing < FAILING_MAX,
      })
      for (const delivery of due) this.#start(delivery)
      return due.length > 0
    } catch (error) {
      log.warn({ operation: 'webhook.look', err: error }, 'webhooks wait')
      return false
    }
  }

  async #disableFailing(): Promise<void> {
    const { webhooks, log, onDisabled } = this.#services
    const nowMs = performance.now()
    if (nowMs - this.#disabledAtMs < DISABLE_INTERVAL_MS) return
    this.#disabledAtMs = nowMs
    for (const endpoint of await webhooks.disableFailing()) {
      const fields = { operation: 'webhook.disable', endpointId: endpoint.id }
      log.warn(fields, 'webhook endpoint disabled')
      onDisabled(endpoint)
    }
  }

  get #failing(): number {
    return [...this.#inFlight].filter(({ endpoint }) => endpoint.failingSince !== null).length
  }

  /** The endpoints or organizations that have reached their limit of attempts in flight. */
  #busy(nameOf: (endpoint: EndpointRow) => string, most: number): string[] {
    const counts = new Map<string, number>()
    for (const { endpoint } of this.#inFlight) {
      const name = nameOf(endpoint)
      counts.set(name, (counts.get(name) ?? 0) + 1)
    }
    return [...counts].filter(([, count]) => count >= most).map(([name]) => name)
  }

  #start(delivery: DueDelivery): void {
    this.#inFlight.add(delivery)
    const attempt = this.#deliver(delivery)
      .then((ended) => void this.#ended.push(ended))
      .catch((error: unknown) => {
        this.#inFlight.delete(delivery)
        const fields = { operation: 'webhook.deliver', deliveryId: delivery.id, err: error }
        this.#services.log.warn(fields, 'webhook delivery left to its lease')
      })
      .finally(() => {
        this.#attempts.delete(attempt)
        this.#loop.wake()
      })
    this.#attempts.add(attempt)
  }

  /** Records the attempts that have ended; they count as in flight until then. */
  async #settle(): Promise<void> {
    const ended = this.#ended
    this.#ended = []
    try {
      await this.#services.webhooks.settle(ended)
    } catch (error) {
      const fields = { operation: 'webhook.settle', deliveries: ended.length, err: error }
      this.#services.log.warn(fields, 'webhook deliveries left to their leases')
    } finally {
      for (const { delivery } of ended) this.#inFlight.delete(delivery)
    }
  }

  async #deliver(delivery: DueDelivery): Promise<EndedAttempt> {
    const { event, attempts } = delivery
    const attempt = await this.#send(delivery)
    const ageMs = this.#services.clock.now() - event.createdAt.getTime()
    const delayMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(attempts - 1, 20))
    const isLast = attempt.isDelivered || ageMs + delayMs > RETRIED_FOR_MS
    return { delivery, ...attempt, ...(!isLast && { retryAfterMs: delayMs }) }
  }

  async #send({ endpoint, event }: DueDelivery): Promise<Attempt> {
    const { clock } = this.#services
    const text = JSON.stringify({
      id: event.id,
      object: 'event',
      type: event.type,
      created_at: unixSeconds(event.createdAt.getTime()),
      data: event.data,
    })
    const secrets = await this.#secretsOf(endpoint)
    const headers = signWebhook(secrets, { id: event.id, nowMs: clock.now(), text })
    try {
      const request = { url: endpoint.url, method: 'POST', headers, json: text } as const
      const { status } = await this.#fetch(request)
      const isDelivered = status >= 200 && status < 300
      return { isDelivered, status, ...(!isDelivered && { error: `answered ${status}` }) }
    } catch (error) {
      if (!(error instanceof OutgoingError)) throw error
      return { isDelivered: false, error: error.message.slice(0, 500) }
    }
  }

  async #secretsOf(endpoint: EndpointRow): Promise<readonly Buffer[]> {
    const { secrets, clock } = this.#services
    return secrets.liveOf(endpoint, clock.now())
  }
}
