import type { Registry } from './registry.ts'

type Row = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

interface Sample {
  readonly value: number
  readonly labels: Readonly<Record<string, string | number>>
  readonly metricName?: string
}

/** A metric of vLLM and our equivalent. */
interface Twin {
  readonly name: string
  readonly from: string
  readonly type: 'histogram' | 'counter' | 'gauge'
  /** For a counter derived from a histogram: its sum or its count. */
  readonly part?: '_sum' | '_count'
  /** Only samples with these labels. */
  readonly where?: Readonly<Record<string, string>>
}

const INPUT = { gen_ai_token_type: 'input' }
const OUTPUT = { gen_ai_token_type: 'output' }
const USAGE = 'gen_ai_client_token_usage'
const PHASES = 'millrace_run_phase_seconds'
const PARAMETERS = 'millrace_request_parameter'
const PER_TOKEN = 'gen_ai_server_time_per_output_token_seconds'

// Names as documented by vLLM 0.11; renamed metrics appear under both names.
const TWINS: readonly Twin[] = [
  histogram('time_to_first_token_seconds', 'gen_ai_server_time_to_first_token_seconds'),
  histogram('inter_token_latency_seconds', PER_TOKEN),
  histogram('time_per_output_token_seconds', PER_TOKEN),
  histogram('e2e_request_latency_seconds', 'gen_ai_server_request_duration_seconds'),
  histogram('request_queue_time_seconds', 'millrace_queue_wait_seconds'),
  histogram('request_prompt_tokens', USAGE, INPUT),
  histogram('request_generation_tokens', USAGE, OUTPUT),
  histogram('request_max_num_generation_tokens', 'millrace_longest_candidate_tokens'),
  histogram('request_prefill_time_seconds', PHASES, { phase: 'prefill' }),
  histogram('request_decode_time_seconds', PHASES, { phase: 'decode' }),
  histogram('request_inference_time_seconds', PHASES, { phase: 'inference' }),
  histogram('iteration_tokens_total', 'millrace_step_tokens'),
  histogram('request_params_n', PARAMETERS, { parameter: 'n' }),
  histogram('request_params_max_tokens', PARAMETERS, { parameter: 'max_tokens' }),
  // A run that is handed over or postponed continues later, like a preempted run in vLLM.
  {
    name: 'num_preemptions_total',
    from: 'millrace_job_runs_total',
    type: 'counter',
    where: { outcome: 'yielded' },
  },
  { name: 'prompt_tokens_total', from: USAGE, type: 'counter', part: '_sum', where: INPUT },
  { name: 'generation_tokens_total', from: USAGE, type: 'counter', part: '_sum', where: OUTPUT },
  {
    name: 'request_success_total',
    from: 'gen_ai_server_request_duration_seconds',
    type: 'counter',
    part: '_count',
    where: { error_type: '' },
  },
  {
    name: 'prefix_cache_queries_total',
    from: 'millrace_prefix_cache_queries_total',
    type: 'counter',
  },
  { name: 'prefix_cache_hits_total', from: 'millrace_prefix_cache_hits_total', type: 'counter' },
  { name: 'num_requests_running', from: 'millrace_worker_jobs_running', type: 'gauge' },
  { name: 'num_requests_waiting', from: 'millrace_worker_jobs_waiting', type: 'gauge' },
  { name: 'kv_cache_usage_perc', from: 'millrace_cache_use_ratio', type: 'gauge' },
  { name: 'gpu_cache_usage_perc', from: 'millrace_cache_use_ratio', type: 'gauge' },
]

/**
 * Exports the same numbers under vLLM's names, in the exposition format, for dashboards,
 * autoscalers and routers made for vLLM.
 */
export async function vllmNames(registry: Registry): Promise<string> {
  const rows = new Map((await registry.getMetricsAsJSON()).map((row) => [row.name, row]))
  const twins = TWINS.flatMap((twin) => {
    const row = rows.get(twin.from)
    return row === undefined ? [] : linesOf(twin, row)
  })
  return [...twins, ...cacheConfig(rows)].join('')
}

/**
 * The size of each cache. A slot corresponds to a block of vLLM: it belongs to one sequence and
 * holds as many tokens as the context window.
 */
function cacheConfig(rows: ReadonlyMap<string, Row>): string[] {
  const [slots, contexts] = ['millrace_worker_slots', 'millrace_worker_context_tokens'].map(
    (name) =>
      ((rows.get(name)?.values ?? []) as readonly Sample[]).filter(
        ({ labels }) => labels.kind === 'completion',
      ),
  )
  const lines = (contexts ?? []).flatMap(({ labels: { gen_ai_request_model: model }, value }) => {
    const blocks = slots?.find(({ labels }) => labels.gen_ai_request_model === model)?.value
    if (blocks === undefined) return []
    const labels = `model_name="${model}",block_size="${value}",num_gpu_blocks="${blocks}"`
    return [`vllm:cache_config_info{${labels}} 1\n`]
  })
  if (lines.length === 0) return []
  const name = 'vllm:cache_config_info'
  return [`# HELP ${name} Slots of the cache and their tokens.\n# TYPE ${name} gauge\n`, ...lines]
}

function histogram(name: string, from: string, where?: Twin['where']): Twin {
  return { name, from, type: 'histogram', ...(where !== undefined && { where }) }
}

function linesOf(twin: Twin, row: Row): string[] {
  // Sums over labels that vLLM does not have.
  const sums = new Map<string, number>()
  for (const { value, labels, metricName = row.name } of row.values as readonly Sample[]) {
    const suffix = metricName.slice(twin.from.length)
    if (twin.part !== undefined && suffix !== twin.part) continue
    if (!Object.entries(twin.where ?? {}).every(([key, wanted]) => labels[key] === wanted)) continue
    const bound = labels.le === undefined ? '' : `,le="${labels.le}"`
    const series = `vllm:${twin.name}${twin.part === undefined ? suffix : ''}{model_name="${labels.gen_ai_request_model}"${bound}}`
    sums.set(series, (sums.get(series) ?? 0) + value)
  }
  if (sums.size === 0) return []
  const head = `# HELP vllm:${twin.name} As ${twin.from}.\n# TYPE vllm:${twin.name} ${twin.type}\n`
  return [head, ...[...sums].map(([series, value]) => `${series} ${value}\n`)]
}
