import { Counter, Gauge, type Registry } from 'prom-client'

import type { ServedQueue } from '#shared/queue/liveness.ts'
import {
  batchSize,
  longestCandidate,
  queueWait,
  requestedAmounts,
  runPhases,
  stepTokens,
  timePerOutputToken,
  timeToFirstToken,
  tokenUsage,
} from '#shared/telemetry/gen-ai.ts'

/** The instruments of a worker. */
export interface WorkerMetrics {
  readonly queueWait: ReturnType<typeof queueWait>
  readonly timeToFirstToken: ReturnType<typeof timeToFirstToken>
  readonly timePerOutputToken: ReturnType<typeof timePerOutputToken>
  readonly tokenUsage: ReturnType<typeof tokenUsage>
  readonly longestCandidate: ReturnType<typeof longestCandidate>
  readonly batchSize: ReturnType<typeof batchSize>
  readonly stepTokens: ReturnType<typeof stepTokens>
  readonly runPhases: ReturnType<typeof runPhases>
  readonly requestedAmounts: ReturnType<typeof requestedAmounts>
  readonly runs: Counter<'kind' | 'gen_ai_request_model' | 'outcome'>
  readonly prefixQueries: Counter<'kind' | 'gen_ai_request_model'>
  readonly prefixHits: Counter<'kind' | 'gen_ai_request_model'>
}

/** Registers the metrics that are recorded by events. */
export function createWorkerMetrics(registry: Registry): WorkerMetrics {
  const registers = [registry]
  const model = ['kind', 'gen_ai_request_model'] as const
  return {
    queueWait: queueWait(registry),
    timeToFirstToken: timeToFirstToken(registry),
    timePerOutputToken: timePerOutputToken(registry),
    tokenUsage: tokenUsage(registry),
    longestCandidate: longestCandidate(registry),
    batchSize: batchSize(registry),
    stepTokens: stepTokens(registry),
    runPhases: runPhases(registry),
    requestedAmounts: requestedAmounts(registry),
    runs: new Counter({
      name: 'millrace_job_runs_total',
      help: 'Runs of jobs by how they ended here; one job may need several.',
      labelNames: [...model, 'outcome'],
      registers,
    }),
    prefixQueries: new Counter({
      name: 'millrace_prefix_cache_queries_total',
      help: 'Prompt tokens that were looked for in the cache.',
      labelNames: model,
      registers,
    }),
    prefixHits: new Counter({
      name: 'millrace_prefix_cache_hits_total',
      help: 'Prompt tokens that were found in the cache.',
      labelNames: model,
      registers,
    }),
  }
}

/** Registers the metrics that are read at scrape time: the same numbers as in the heartbeat. */
export function registerWorkerGauges(
  registry: Registry,
  queues: () => readonly ServedQueue[],
): void {
  const rows: readonly {
    readonly name: string
    readonly help: string
    /** Undefined where the queue has no such number. */
    read(queue: ServedQueue): number | undefined
  }[] = [
    {
      name: 'millrace_worker_model_ready',
      help: '1 when the model is loaded and its queue is served.',
      read: ({ isReady }) => (isReady ? 1 : 0),
    },
    {
      name: 'millrace_worker_slots',
      help: 'Jobs that run at a time at most.',
      read: ({ slots }) => slots,
    },
    {
      name: 'millrace_worker_context_tokens',
      help: 'Tokens of the context window of a loaded model; the size of a slot of its cache.',
      read: ({ contextLength }) => contextLength,
    },
    {
      name: 'millrace_worker_jobs_running',
      help: 'Jobs that this worker has fetched and not yet completed.',
      read: ({ active }) => active,
    },
    {
      name: 'millrace_worker_jobs_waiting',
      help: 'Fetched jobs that wait inside the engine.',
      read: ({ waiting }) => waiting,
    },
    {
      name: 'millrace_cache_use_ratio',
      help: "Share of the cache's slots in use, from 0 to 1.",
      read: ({ cacheUse }) => cacheUse,
    },
  ]
  for (const { name, help, read } of rows) {
    new Gauge({
      name,
      help,
      labelNames: ['kind', 'gen_ai_request_model'],
      registers: [registry],
      collect() {
        for (const queue of queues()) {
          const value = read(queue)
          if (value === undefined) continue
          this.set({ kind: queue.kind, gen_ai_request_model: queue.modelId }, value)
        }
      },
    })
  }
}
