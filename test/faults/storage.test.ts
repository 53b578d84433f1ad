import { createHash, randomBytes } from 'node:crypto'

import { describe, expect } from 'vitest'

import { type FaultProxy, openFaultProxy } from '#test/support/fault-proxy.ts'
import { report, scale } from '#test/support/fault-report.ts'
import { it, type ToyTiers, timeUntil } from '#test/support/fault-toy.ts'
import { startS3 } from '#test/support/s3.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { toyText } from '#test/support/toy-worker.ts'

const FILE_BYTES = 3 * 1024 * 1024
const headers = { authorization: `Bearer ${API_KEY}` }

/** Uploads bytes; the answer's status, how long it took, and the file's id. */
async function upload(tiers: ToyTiers, bytes: Uint8Array<ArrayBuffer>) {
  const form = new FormData()
  form.set('purpose', 'user_data')
  form.set('file', new Blob([bytes]), 'bytes.bin')
  const from = performance.now()
  const url = `${tiers.api.url}/v1/files`
  const answer = await fetch(url, { method: 'POST', body: form, headers })
  const { id } = (await answer.json()) as { id: string }
  return { status: answer.status, id, ms: performance.now() - from }
}

async function listIds(tiers: ToyTiers): Promise<string[]> {
  const answer = await fetch(`${tiers.api.url}/v1/files`, { headers })
  const { data } = (await answer.json()) as { data: readonly { id: string }[] }
  return data.map(({ id }) => id)
}

async function digestOf(tiers: ToyTiers, id: string): Promise<string> {
  const answer = await fetch(`${tiers.api.url}/v1/files/${id}/content`, { headers })
  return createHash('sha256')
    .update(Buffer.from(await answer.arrayBuffer()))
    .digest('hex')
}

describe('R11: object storage', () => {
  it('is away, is slow, or cuts uploads short', { timeout: 200_000 }, async ({ open }) => {
    const s3 = await startS3()
    const proxy = await openFaultProxy(Number(new URL(s3.config.endpoint).port))
    const tiers = await open({
      S3_ENDPOINT: `http://127.0.0.1:${proxy.port}`,
      S3_BUCKET: s3.config.bucket,
      S3_REGION: s3.config.region,
      S3_ACCESS_KEY_ID: s3.config.accessKeyId,
      S3_SECRET_ACCESS_KEY: s3.config.secretAccessKey,
    })
    try {
      await tiers.startToyWorker(4)
      const stored = new Map<string, string>()
      const faults: readonly [string, () => void, boolean][] = [
        ['none', () => proxy.mend(), true],
        ['down', () => proxy.cut(), false],
        ['slow', () => proxy.delay(scale(5000, 300)), true],
        ['truncating', () => proxy.truncateAfter(1024 * 1024), false],
        ['back', () => proxy.mend(), true],
      ]
      const statuses: Record<string, string> = {}
      for (const [name, begin, mayWork] of faults) {
        const { status, ms } = await underFault(tiers, stored, begin)
        statuses[name] = `${status} in ${Math.round(ms)} ms`
        if (mayWork) expect([name, status]).toEqual([name, 200])
        else expect([name, status]).toEqual([name, 503])
      }
      const wrong = await checkStored(tiers, proxy, stored)
      report('R11', { ...statuses, 'visible files': stored.size, 'with wrong bytes': wrong })
      expect(wrong).toBe(0)
    } finally {
      await tiers.stop()
      await proxy.close()
      await s3.stop()
    }
  })
})

/** One upload while the fault lasts; text is asked for beside it. */
async function underFault(tiers: ToyTiers, stored: Map<string, string>, begin: () => void) {
  const bytes = new Uint8Array(randomBytes(FILE_BYTES))
  begin()
  const [sent, seen] = await Promise.all([upload(tiers, bytes), tiers.read('stepMs=2', 50)])
  expect(seen.text).toBe(toyText(50))
  if (sent.status === 200) stored.set(sent.id, createHash('sha256').update(bytes).digest('hex'))
  return sent
}

async function checkStored(
  tiers: ToyTiers,
  proxy: FaultProxy,
  stored: ReadonlyMap<string, string>,
): Promise<number> {
  proxy.mend()
  await timeUntil(async () => (await listIds(tiers)).length === stored.size)
  let wrong = 0
  for (const id of await listIds(tiers)) {
    if ((await digestOf(tiers, id)) !== stored.get(id)) wrong += 1
  }
  return wrong
}
