import { existsSync } from 'node:fs'

import { startS3 } from '#test/support/s3.ts'

// An S3 server in a process of its own, so that it shares no event loop with those whom it serves.
// Its objects lie in memory where they can: a disk that falls behind would be all that is measured.
if (existsSync('/dev/shm')) process.env.TMPDIR = '/dev/shm'
const { config } = await startS3()
const { endpoint, bucket, accessKeyId, secretAccessKey, region } = config
const settings = {
  S3_ENDPOINT: endpoint,
  S3_BUCKET: bucket,
  S3_REGION: region,
  S3_ACCESS_KEY_ID: accessKeyId,
  S3_SECRET_ACCESS_KEY: secretAccessKey,
}
process.stdout.write(`ready ${JSON.stringify(settings)}\n`)
