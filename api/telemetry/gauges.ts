import type { Pool } from 'pg'
import { Gauge, type Registry } from 'prom-client'

import type { QueueRef, QueueStates } from '#shared/queue/depth.ts'
import { nameOf, QUEUE_STATES } from '#shared/queue/depth.ts'
import type { WorkerHeartbeat } from '#shared/queue/liveness.ts'

/** The values that are read at scrape time. */
interface ApiReadings {
  /** The queues of the current catalogue. */
  queues(): readonly QueueRef[]
  /** The jobs of a queue by state; rejects while its Redis is away. */
  readDepth(queue: QueueRef): Promise<QueueStates>
  /**
   * How long the oldest waiting job of a queue has waited, in milliseconds; undefined without one.
   * Rejects while its Redis is away.
   */
  readOldestWait(queue: QueueRef): Promise<number | undefined>
  workers(): readonly WorkerHeartbeat[]
  readonly pool: Pick<Pool, 'totalCount' | 'idleCount' | 'waitingCount'>
  /** Queue and running tasks of the password threads. */
  hashing(): { readonly running: number; readonly waiting: number }
  jobsInFlight(): number
  dependencies(): Promise<readonly { readonly name: string; readonly isOk: boolean }[]>
  /** Mails and text messages that wait for delivery. */
  outbox(): Promise<{ readonly waiting: number; readonly failing: number }>
}

/** Registers the metrics that are read at scrape time. */
export function registerGauges(registry: Registry, readings: ApiReadings): void {
  registerQueues(registry, readings)
  registerQueueAges(registry, readings)
  registerWorkers(registry, readings)
  registerPools(registry, readings)
  registerDependencies(registry, readings)
  simple(registry, {
    name: 'millrace_jobs_under_way',
    help: 'Jobs that this process owns: submitted and not yet answered.',
    read: () => readings.jobsInFlight(),
  })
  registerOutbox(registry, readings)
}

function registerOutbox(registry: Registry, readings: ApiReadings): void {
  new Gauge({
    name: 'millrace_outbox_messages',
    help: 'Mails and text messages that wait for delivery, and those of them that failed before. Every API process reports the same number.',
    labelNames: ['state'],
    registers: [registry],
    async collect() {
      this.reset()
      const state = await readings.outbox().catch(() => undefined)
      // While the database is unavailable, the gauge has no value.
      if (state === undefined) return
      this.set({ state: 'waiting' }, state.waiting)
      this.set({ state: 'failing' }, state.failing)
    },
  })
}

function registerDependencies(registry: Registry, { dependencies }: ApiReadings): void {
  new Gauge({
    name: 'millrace_dependency_up',
    help: '1 while a service that this process needs works.',
    labelNames: ['dependency'],
    registers: [registry],
    async collect() {
      for (const { name, isOk } of await dependencies())
        this.set({ dependency: name }, isOk ? 1 : 0)
    },
  })
}

/** A value of each queue whose Redis answers. */
async function readEach<T>(
  queues: readonly QueueRef[],
  read: (queue: QueueRef) => Promise<T>,
): Promise<readonly { readonly queue: QueueRef; readonly value: T }[]> {
  const values = queues.map((queue) =>
    read(queue).then(
      (value) => [{ queue, value }],
      () => [],
    ),
  )
  return (await Promise.all(values)).flat()
}

function registerQueues(registry: Registry, { queues, readDepth }: ApiReadings): void {
  let reading: ReturnType<typeof readEach<QueueStates>> = Promise.resolve([])
  new Gauge({
    name: 'millrace_redis_up',
    help: '1 while all queues can be read.',
    registers: [registry],
    async collect() {
      const read = queues()
      reading = readEach(read, readDepth)
      this.set((await reading).length === read.length ? 1 : 0)
    },
  })
  new Gauge({
    name: 'millrace_queue_jobs',
    help: 'Jobs of a queue by state. Every API process reports the same number.',
    labelNames: ['queue', 'kind', 'gen_ai_request_model', 'state'],
    registers: [registry],
    // Metrics are collected in registration order, so the read above has already started.
    async collect() {
      this.reset()
      // While its Redis is unavailable, a queue has no value.
      for (const { queue, value: states } of await reading) {
        const { kind, modelId } = queue
        const labels = { queue: nameOf(queue), kind, gen_ai_request_model: modelId }
        for (const state of QUEUE_STATES) this.set({ ...labels, state }, states[state])
      }
    },
  })
}

function registerQueueAges(registry: Registry, { queues, readOldestWait }: ApiReadings): void {
  new Gauge({
    name: 'millrace_queue_oldest_job_seconds',
    help: 'How long the oldest waiting job of a queue has waited, 0 without one. Every API process reports the same number.',
    labelNames: ['queue', 'kind', 'gen_ai_request_model'],
    registers: [registry],
    async collect() {
      this.reset()
      for (const { queue, value: waitMs = 0 } of await readEach(queues(), readOldestWait)) {
        const { kind, modelId } = queue
        const labels = { queue: nameOf(queue), kind, gen_ai_request_model: modelId }
        this.set(labels, waitMs / 1000)
      }
    },
  })
}

function registerWorkers(registry: Registry, { queues, workers }: ApiReadings): void {
  const labelNames = ['kind', 'gen_ai_request_model'] as const
  const rows: readonly {
    readonly name: string
    readonly help: string
    read(served: readonly WorkerHeartbeat['queues'][number][]): number
  }[] = [
    {
      name: 'millrace_workers_ready',
      help: 'Living workers that have loaded the model and take jobs.',
      read: (served) => served.filter(({ isReady }) => isReady).length,
    },
    {
      name: 'millrace_worker_slots_offered',
      help: 'Jobs of the model that the living workers can run at a time.',
      read: (served) => served.reduce((sum, { isReady, slots }) => sum + (isReady ? slots : 0), 0),
    },
  ]
  for (const { name, help, read } of rows) {
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        this.reset()
        const heartbeats = workers().filter(({ isDraining }) => !isDraining)
        for (const { kind, modelId } of queues()) {
          const served = heartbeats
            .flatMap((heartbeat) => heartbeat.queues)
            .filter((queue) => queue.kind === kind && queue.modelId === modelId)
          this.set({ kind, gen_ai_request_model: modelId }, read(served))
        }
      },
    })
  }
}

function registerPools(registry: Registry, readings: ApiReadings): void {
  const { pool } = readings
  new Gauge({
    name: 'db_client_connection_count',
    help: 'Connections to Postgres by state.',
    labelNames: ['db_client_connection_state'],
    registers: [registry],
    collect() {
      this.set({ db_client_connection_state: 'idle' }, pool.idleCount)
      this.set({ db_client_connection_state: 'used' }, pool.totalCount - pool.idleCount)
    },
  })
  simple(registry, {
    name: 'db_client_connection_pending_requests',
    help: 'Queries that wait for a connection to Postgres.',
    read: () => pool.waitingCount,
  })
  simple(registry, {
    name: 'millrace_password_hashes_running',
    help: 'Password hashes that are being computed.',
    read: () => readings.hashing().running,
  })
  simple(registry, {
    name: 'millrace_password_hashes_waiting',
    help: 'Password hashes that wait for a place in the pool.',
    read: () => readings.hashing().waiting,
  })
}

function simple(
  registry: Registry,
  row: { readonly name: string; readonly help: string; read(): number },
): void {
  new Gauge({
    name: row.name,
    help: row.help,
    registers: [registry],
    collect() {
      this.set(row.read())
    },
  })
}
