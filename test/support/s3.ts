import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import S3rver from 's3rver'

import type { StorageConfig } from '#shared/config/infra.ts'

/**
 * The S3 server of `TEST_S3_URL` (with its bucket and keys in the query), or one in this process:
 * that one speaks the protocol but checks no signatures.
 */
export async function startS3(): Promise<{
  config: StorageConfig & { driver: 's3' }
  stop(): Promise<void>
}> {
  const given = process.env.TEST_S3_URL
  if (given !== undefined && given !== '')
    return { config: configOf(new URL(given)), stop: async () => {} }
  const directory = await mkdtemp(join(tmpdir(), 'millrace-s3-'))
  const server = new S3rver({
    port: 0,
    address: '127.0.0.1',
    silent: true,
    directory,
    configureBuckets: [{ name: 'millrace', configs: [] }],
  })
  const { port } = await server.run()
  const url = new URL(`http://127.0.0.1:${port}?bucket=millrace&key=S3RVER&secret=S3RVER`)
  return {
    config: configOf(url),
    async stop() {
      await server.close()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

function configOf(url: URL): StorageConfig & { driver: 's3' } {
  return {
    driver: 's3',
    endpoint: url.origin,
    bucket: url.searchParams.get('bucket') ?? 'millrace',
    region: 'us-east-1',
    accessKeyId: url.searchParams.get('key') ?? '',
    secretAccessKey: url.searchParams.get('secret') ?? '',
    isPathStyle: true,
  }
}
