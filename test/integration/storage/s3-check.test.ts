import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openS3Store } from '#shared/storage/s3-store.ts'
import { startS3 } from '#test/support/s3.ts'

let s3: Awaited<ReturnType<typeof startS3>>

beforeAll(async () => {
  s3 = await startS3()
})
afterAll(() => s3?.stop())

describe('the check of the object storage', () => {
  it.for([
    ['S3_BUCKET', { bucket: 'no-such-bucket' }, 'it has no such bucket: check S3_BUCKET'],
    ['S3_ACCESS_KEY_ID', { accessKeyId: 'UNKNOWN' }, 'check S3_ACCESS_KEY_ID'],
    [
      'S3_ENDPOINT',
      { endpoint: 'http://127.0.0.1:1' },
      'ECONNREFUSED 127.0.0.1:1: check S3_ENDPOINT',
    ],
    ['S3_ENDPOINT', 'https', 'it does not speak TLS: check S3_ENDPOINT'],
  ] as const)('names %s when it is wrong: %j', async ([_setting, given, sentence]) => {
    const https = { endpoint: s3.config.endpoint.replace('http:', 'https:') }
    const wrong = given === 'https' ? https : given
    const store = openS3Store({ ...s3.config, ...wrong })
    await expect(store.check()).rejects.toThrow(sentence)
    store.close()
  })
})
