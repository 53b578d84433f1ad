import OpenAI, { toFile } from 'openai'
import { expect } from 'vitest'

import { API_KEY } from '#test/support/tiers.ts'

/** Sends bodies as the lines of a batch; resolves to its status and those of its answers. */
export async function answersOfBatch(
  url: string,
  endpoint: string,
  bodies: readonly object[],
): Promise<{ readonly status: string; readonly answers: readonly number[] }> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: API_KEY })
  const lines = bodies.map((body, at) =>
    JSON.stringify({ custom_id: `line_${at}`, method: 'POST', url: endpoint, body }),
  )
  const file = await toFile(Buffer.from(lines.join('\n')), 'lines.jsonl')
  const { id: fileId } = await client.files.create({ purpose: 'batch', file })
  const { id } = await client.batches.create({
    input_file_id: fileId,
    completion_window: '24h',
    endpoint: endpoint as OpenAI.BatchCreateParams['endpoint'],
  })
  const isEnded = async (): Promise<boolean> => {
    const { status } = await client.batches.retrieve(id)
    return ['completed', 'failed', 'expired', 'cancelled'].includes(status)
  }
  await expect.poll(isEnded, { timeout: 120_000, interval: 200 }).toBe(true)
  const { status, output_file_id: good, error_file_id: bad } = await client.batches.retrieve(id)
  const answers: number[] = []
  for (const output of [good, bad]) {
    if (typeof output !== 'string') continue
    const text = await (await client.files.content(output)).text()
    for (const json of text.trimEnd().split('\n')) {
      answers.push((JSON.parse(json) as { response: { status_code: number } }).response.status_code)
    }
  }
  return { status, answers }
}
