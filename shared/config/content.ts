import type { EnvReader } from './env-reader.ts'

/** The retention and quota of files and activities. */
export interface ContentConfig {
  /** Bytes of uploaded files per organization. */
  readonly storageBytesMax: number
  /** Days after which activities are deleted; undefined keeps them. */
  readonly activitiesRetentionDays: number | undefined
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
  return { storageBytesMax, activitiesRetentionDays: days === 0 ? undefined : days }
}
