import type { EnvReader } from './env-reader.ts'

/** The limits of one key and one organization; 0 sets no limit. */
export interface LimitsConfig {
  readonly requestsPerMinute: { readonly key: number; readonly organization: number }
  readonly tokensPerMinute: { readonly key: number; readonly organization: number }
  /** Limits that all anonymous users of one network share. */
  readonly anonymous: {
    readonly requestsPerMinute: number
    readonly tokensPerMinute: number
    readonly mayCreateKeys: boolean
  }
  /** Requests of an organization that may run jobs at the same time. */
  readonly concurrentJobs: number
  /** Tokens of an organization in a calendar month (UTC). */
  readonly monthlyTokens: number
  /** Organizations that one user creates, besides their own. */
  readonly organizationsPerUser: number
}

/** Reads the limits of keys and organizations. */
export function readLimitsConfig(env: EnvReader): LimitsConfig {
  env.section('Limits of keys and organizations')
  const limit = (name: string, about: string, fallback: number): number =>
    env.int(name, { about: `${about}; 0 sets no limit`, fallback, max: 1e12 })
  return {
    requestsPerMinute: {
      key: limit('MILLRACE_KEY_REQUESTS_PER_MINUTE', 'requests of one key in a minute', 600_000),
      organization: limit(
        'MILLRACE_ORGANIZATION_REQUESTS_PER_MINUTE',
        'requests of one organization in a minute',
        600_000,
      ),
    },
    tokensPerMinute: {
      key: limit('MILLRACE_KEY_TOKENS_PER_MINUTE', 'tokens of one key in a minute', 100_000_000),
      organization: limit(
        'MILLRACE_ORGANIZATION_TOKENS_PER_MINUTE',
        'tokens of one organization in a minute',
        100_000_000,
      ),
    },
    anonymous: {
      requestsPerMinute: limit(
        'MILLRACE_ANONYMOUS_REQUESTS_PER_MINUTE',
        'requests of the anonymous users of one network in a minute',
        600,
      ),
      tokensPerMinute: limit(
        'MILLRACE_ANONYMOUS_TOKENS_PER_MINUTE',
        'tokens of the anonymous users of one network in a minute',
        100_000,
      ),
      mayCreateKeys: env.bool('MILLRACE_ANONYMOUS_USERS_CREATE_KEYS', {
        about: 'let anonymous users create and use API keys',
        fallback: false,
      }),
    },
    concurrentJobs: limit(
      'MILLRACE_ORGANIZATION_CONCURRENT_JOBS',
      'inference requests of one organization at the same time',
      20_000,
    ),
    monthlyTokens: limit(
      'MILLRACE_ORGANIZATION_MONTHLY_TOKENS',
      'tokens of one organization in a calendar month',
      0,
    ),
    organizationsPerUser: limit(
      'MILLRACE_ORGANIZATIONS_PER_USER',
      'organizations that one user may create besides the personal one; deleted ones count for 30 days',
      20,
    ),
  }
}

/** Retention and quota of files, activities and usage. */
export interface ContentConfig {
  /** Bytes of uploaded files per organization. */
  readonly storageBytesMax: number
  /** Days after which activities are deleted; undefined keeps them. */
  readonly activitiesRetentionDays: number | undefined
  /** Days after which usage is deleted; undefined keeps it. */
  readonly usageRetentionDays: number | undefined
  /** Bytes of all activities that clients recorded, per organization. */
  readonly activitiesBytesMax: number
  /** Whether responses are stored when the request does not say so. */
  readonly storesResponses: boolean
  /** Days for which responses, conversations and ended jobs are stored. */
  readonly retentionDays: number
  /** Unfinished background jobs per organization. */
  readonly openJobsMax: number
  /** Bytes of the stored requests of all unfinished jobs. */
  readonly openJobBytesMax: number
  /** Bytes of stored responses, conversations, results of jobs and open batches together. */
  readonly storedBytesMax: number
  /** Bytes of answers recorded in Redis within a day because of `Idempotency-Key`. */
  readonly recordedBytesMax: number
  readonly webhooks: {
    /** Whether webhooks may be sent to addresses outside the public internet. */
    readonly allowsPrivateAddresses: boolean
    /** Bytes of the stored events and deliveries of an organization. */
    readonly bytesMax: number
  }
}

/** Reads the settings of files and activities. */
export function readContentConfig(env: EnvReader): ContentConfig {
  env.section('Files and activities')
  const storageBytesMax = env.int('MILLRACE_STORAGE_BYTES_MAX', {
    about: 'bytes of uploaded files per organization',
    fallback: 1024 ** 3,
    min: 1,
  })
  const days = env.int('MILLRACE_ACTIVITIES_RETENTION_DAYS', {
    about: 'days after which activities are deleted; 0 keeps them',
    fallback: 0,
  })
  return {
    storageBytesMax,
    activitiesRetentionDays: days === 0 ? undefined : days,
    usageRetentionDays: readUsageDays(env),
    activitiesBytesMax: env.int('MILLRACE_ACTIVITIES_BYTES_MAX', {
      about: 'bytes of the activities that clients record per organization',
      fallback: 4 * 1024 ** 3,
      min: 1,
    }),
    storesResponses: env.bool('MILLRACE_STORE_RESPONSES', {
      about: 'store responses when the request does not set store',
      fallback: true,
    }),
    retentionDays: env.int('MILLRACE_RETENTION_DAYS', {
      about: 'days for which responses, conversations and ended jobs are stored; 0 stores none',
      fallback: 30,
      max: 3650,
    }),
    openJobsMax: env.int('MILLRACE_BACKGROUND_JOBS_MAX', {
      about: 'unfinished background jobs per organization',
      fallback: 10_000,
      min: 1,
    }),
    openJobBytesMax: env.int('MILLRACE_BACKGROUND_JOBS_BYTES_MAX', {
      about: 'bytes of the stored requests of unfinished background jobs per organization',
      fallback: 1024 ** 3,
      min: 1,
    }),
    storedBytesMax: env.int('MILLRACE_STORED_BYTES_MAX', {
      about:
        'bytes of stored responses, conversations, results of background jobs and unfinished batches per organization',
      fallback: 4 * 1024 ** 3,
      min: 1,
    }),
    recordedBytesMax: env.int('MILLRACE_IDEMPOTENCY_BYTES_MAX', {
      about:
        'bytes in Redis of the answers recorded under Idempotency-Key in a day; one organization may use a quarter',
      fallback: 256 * 1024 * 1024,
      min: 1024 * 1024,
    }),
    webhooks: {
      allowsPrivateAddresses: env.bool('MILLRACE_WEBHOOKS_ALLOW_PRIVATE', {
        about: 'send webhooks to private IP addresses as well',
        fallback: false,
      }),
      bytesMax: env.int('MILLRACE_WEBHOOKS_BYTES_MAX', {
        about: 'bytes of the events and deliveries of webhooks per organization',
        fallback: 1024 ** 3,
        min: 1,
      }),
    },
  }
}

/** Limits of fine-tuning. */
export interface TuningConfig {
  /** Unfinished jobs per organization. */
  readonly jobsMax: number
  /** Jobs per organization whose models are stored, including unfinished jobs. */
  readonly modelsMax: number
  /** Examples of one file. */
  readonly examplesMax: number
  readonly epochsMax: number
  /** The longest time that one run may wait and train. */
  readonly hoursMax: number
}

// The record with which another process adopts a training is kept for a day.
const HOURS_MAX = 23

/** Reads the limits of fine-tuning. */
export function readTuningConfig(env: EnvReader): TuningConfig {
  env.section('Fine-tuning')
  return {
    jobsMax: env.int('MILLRACE_FINE_TUNING_JOBS_MAX', {
      about: 'unfinished fine-tuning jobs per organization',
      fallback: 3,
      min: 1,
    }),
    modelsMax: env.int('MILLRACE_FINE_TUNED_MODELS_MAX', {
      about: 'fine-tuned models per organization, not counting checkpoints',
      fallback: 100,
      min: 1,
    }),
    examplesMax: env.int('MILLRACE_FINE_TUNING_EXAMPLES_MAX', {
      about: 'maximum number of examples in one file',
      fallback: 100_000,
      min: 1,
    }),
    epochsMax: env.int('MILLRACE_FINE_TUNING_EPOCHS_MAX', {
      about: 'maximum number of epochs that a job may ask for',
      fallback: 50,
      min: 1,
    }),
    hoursMax: env.int('MILLRACE_FINE_TUNING_HOURS_MAX', {
      about: 'hours that one run of a job may take, including waiting; a paused job can be resumed',
      fallback: HOURS_MAX,
      min: 1,
      max: HOURS_MAX,
    }),
  }
}

/** Quotas per month need the usage of a month of 31 days. */
const USAGE_DAYS_MIN = 32

function readUsageDays(env: EnvReader): number | undefined {
  const days = env.int('MILLRACE_USAGE_RETENTION_DAYS', {
    about: 'days after which usage is deleted, 32 at least, for quotas per month; 0 keeps it',
    fallback: 400,
    max: 36_500,
  })
  if (days === 0) return undefined
  if (days < USAGE_DAYS_MIN) {
    env.problem(
      `MILLRACE_USAGE_RETENTION_DAYS must be 0 or at least ${USAGE_DAYS_MIN}: quotas per month are computed from the usage`,
    )
  }
  return days
}
