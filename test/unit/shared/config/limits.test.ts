import { describe, expect, it } from 'vitest'

import { EnvReader } from '#shared/config/env-reader.ts'
import { readContentConfig } from '#shared/config/limits.ts'

describe('MILLRACE_USAGE_RETENTION_DAYS', () => {
  it.each([
    ['', 400, []],
    ['0', undefined, []],
    ['32', 32, []],
    ['31', 31, [expect.stringMatching(/must be 0 or at least 32/)]],
  ])('%j keeps usage for %s days', (value, days, problems) => {
    const env = new EnvReader({ MILLRACE_USAGE_RETENTION_DAYS: value })
    expect(readContentConfig(env).usageRetentionDays).toBe(days)
    expect(env.problems).toEqual(problems)
  })
})
