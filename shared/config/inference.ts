import { QUEUE_KINDS } from '#shared/contracts/job.ts'

import type { EnvReader } from './env-reader.ts'

/** Dialects besides that of OpenAI, each of which can be switched off. */
const DIALECTS = ['anthropic', 'cohere', 'rerank', 'tei', 'vllm'] as const
export type Dialect = (typeof DIALECTS)[number]

/** Limits of the inference service and what a worker serves. */
export interface InferenceConfig {
  /** Path of the catalogue. */
  readonly catalogueFile: string
  /** The folder of downloaded models. */
  readonly modelCacheDir: string
  readonly hub: {
    readonly endpoint: string
    readonly accessToken: string
    readonly isOffline: boolean
  }
  /** The API key of the first organization; a random one is made when empty. */
  readonly bootstrapApiKey: string
  readonly deadlineSeconds: number
  readonly queueDepthMax: number
  /** Redis memory in bytes for the inputs of one process's unfinished jobs. */
  readonly queuedBytesMax: number
  /** Object storage in bytes for the media of one process's unfinished requests. */
  readonly temporaryBytesMax: number
  /** Whether request fields that no route knows are refused, or ignored and reported. */
  readonly unknownParameters: 'refuse' | 'ignore'
  readonly dialectsOff: readonly string[]
  /** Images in messages. */
  readonly images: ImageLimits
  readonly worker: WorkerConfig
}

/** Limits of the images of one request, and which URLs of images are fetched. */
export interface ImageLimits {
  readonly countMax: number
  readonly bytesMax: number
  readonly urls: (typeof IMAGE_URLS)[number]
}

const IMAGE_URLS = ['none', 'public', 'all'] as const

/** The queues and models of a worker, and its resources. */
export interface WorkerConfig {
  /** Kinds of queues to serve; empty means all. */
  readonly kinds: readonly string[]
  /** Models to serve; empty means all of the catalogue. */
  readonly modelIds: readonly string[]
  readonly intraOpThreads: number
  /** Bytes of models and caches that may be resident at once. */
  readonly memoryBytesMax: number
  /** Bytes of adapters that may be in memory at once for each model. */
  readonly adapterBytesMax: number
  /** Adapters of a larger rank are refused. */
  readonly adapterRankMax: number
  readonly drainTimeoutSeconds: number
  readonly metricsPort: number
}

/** Reads the settings of the inference service. */
export function readInferenceConfig(env: EnvReader): InferenceConfig {
  env.section('Inference')
  return {
    catalogueFile: env.string('MILLRACE_CATALOGUE', {
      about: 'path of the model catalogue',
      fallback: 'models.json',
    }),
    modelCacheDir: env.string(['MILLRACE_MODEL_CACHE', 'HF_HOME'], {
      about: 'folder of downloaded models; below MILLRACE_DATA_DIR if unset',
    }),
    hub: {
      endpoint: env.url('HF_ENDPOINT', {
        about: 'URL of the model hub',
        fallback: 'https://huggingface.co',
      }),
      accessToken: env.token('HF_TOKEN', { about: 'access token of the hub' }),
      isOffline: env.bool('HF_HUB_OFFLINE', {
        about: 'never contact the hub; use only the cache',
        fallback: false,
      }),
    },
    bootstrapApiKey: env.token('MILLRACE_BOOTSTRAP_API_KEY', {
      about: 'API key of the first organization; a random one is created if unset',
    }),
    deadlineSeconds: env.seconds('MILLRACE_DEADLINE', {
      about: 'time limit of a request, including waiting',
      fallback: 600,
      isTimer: true,
    }),
    queueDepthMax: env.int('MILLRACE_QUEUE_DEPTH_MAX', {
      about: 'number of waiting jobs per queue beyond which new ones are refused',
      fallback: 1000,
      min: 1,
    }),
    queuedBytesMax: env.int('MILLRACE_QUEUED_BYTES_MAX', {
      about:
        'Redis memory in bytes for the inputs of unfinished jobs of one API process; one organization alone may use half',
      fallback: 256 * 1024 * 1024,
      min: 32 * 1024 * 1024,
    }),
    temporaryBytesMax: env.int('MILLRACE_TEMPORARY_BYTES_MAX', {
      about:
        'object storage in bytes for images and recordings of unfinished requests of one API process; one organization alone may use half',
      fallback: 8 * 1024 ** 3,
      min: 1024 ** 3,
    }),
    unknownParameters: env.oneOf('MILLRACE_UNKNOWN_PARAMETERS', ['ignore', 'refuse'], {
      about: 'handling of unknown request fields: ignore (and report them in a header) or refuse',
      fallback: 'ignore',
    }),
    dialectsOff: readDialectsOff(env),
    images: readImageLimits(env),
    worker: readWorkerConfig(env),
  }
}

function readImageLimits(env: EnvReader): ImageLimits {
  return {
    countMax: env.int('MILLRACE_IMAGES_MAX', {
      about: 'maximum number of images in the messages of one request',
      fallback: 16,
      min: 1,
      max: 1000,
    }),
    bytesMax: env.int('MILLRACE_IMAGE_BYTES_MAX', {
      about: 'largest image in a message, in bytes',
      fallback: 20 * 1024 * 1024,
      min: 1024,
      max: 64 * 1024 * 1024,
    }),
    urls: env.oneOf('MILLRACE_IMAGE_URLS', IMAGE_URLS, {
      about: 'image URLs that the server fetches: public (over https), all, or none',
      fallback: 'public',
    }),
  }
}

function readDialectsOff(env: EnvReader): readonly string[] {
  const off = env.list('MILLRACE_DIALECTS_OFF', {
    about: `dialects to turn off: ${DIALECTS.join(', ')}; all are served if unset`,
  })
  const unknown = off.find((name) => !DIALECTS.some((known) => known === name))
  if (unknown !== undefined) {
    env.problem(`MILLRACE_DIALECTS_OFF may name ${DIALECTS.join(', ')}, not "${unknown}"`)
  }
  return off
}

function readWorkerConfig(env: EnvReader): WorkerConfig {
  env.section('Workers')
  const kinds = env.list('MILLRACE_WORKER_KINDS', {
    about:
      'kinds of queues that a worker serves: completion, embedding, image, audio, speech, training; all if unset',
  })
  const unknown = kinds.find((kind) => !QUEUE_KINDS.some((known) => known === kind))
  if (unknown !== undefined) {
    env.problem(`MILLRACE_WORKER_KINDS may name ${QUEUE_KINDS.join(', ')}, not "${unknown}"`)
  }
  return {
    kinds,
    modelIds: env.list('MILLRACE_WORKER_MODELS', {
      about: 'models that a worker serves; the whole catalogue if unset',
    }),
    intraOpThreads: env.int('MILLRACE_INTRA_OP_THREADS', {
      about: 'threads per model run; 0 means one per core',
      fallback: 0,
      max: 256,
    }),
    memoryBytesMax: env.int('MILLRACE_WORKER_MEMORY_BYTES_MAX', {
      about: 'bytes of models and caches that may be resident at once; 0 means no limit',
      fallback: 0,
    }),
    adapterBytesMax: env.int('MILLRACE_ADAPTER_MEMORY_BYTES_MAX', {
      about: 'bytes of adapters in memory for each model; 0 means no limit',
      fallback: 1 << 30,
    }),
    adapterRankMax: env.int('MILLRACE_ADAPTER_RANK_MAX', {
      about: 'maximum rank of an adapter; all adapters are padded to the largest rank in use',
      fallback: 128,
      min: 1,
      max: 4096,
    }),
    drainTimeoutSeconds: env.seconds('MILLRACE_WORKER_DRAIN_TIMEOUT', {
      about: 'how long a stopping worker continues its jobs before it returns them',
      fallback: 1,
      isTimer: true,
    }),
    metricsPort: env.int('MILLRACE_WORKER_METRICS_PORT', {
      about: 'port of the metrics and health endpoints of a worker; 0 takes a free one',
      fallback: 9101,
      max: 65_535,
    }),
  }
}
