import { type OpenAI, toFile } from 'openai'
import { expect } from 'vitest'

/** The endpoint of the test lines. */
export const ENDPOINT = '/v1/chat/completions'

/** One request of an input file. */
export function line(id: string, fields: object = {}): string {
  return JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: ENDPOINT,
    body: { text: id },
    ...fields,
  })
}

/** Uploads an input file. */
export async function upload(
  client: OpenAI,
  lines: readonly string[],
  purpose: 'batch' | 'user_data' = 'batch',
) {
  return client.files.create({
    purpose,
    file: await toFile(Buffer.from(lines.join('\n')), 'a.jsonl'),
  })
}

/** Uploads an input file and makes a batch of it. */
export async function createBatch(
  client: OpenAI,
  lines: readonly string[],
  options: Pick<OpenAI.BatchCreateParams, 'output_expires_after'> = {},
) {
  const { id } = await upload(client, lines)
  return client.batches.create({
    input_file_id: id,
    endpoint: ENDPOINT,
    completion_window: '24h',
    metadata: { job: 'nightly' },
    ...options,
  })
}

/** Waits until a batch is in a state. */
export async function reach(client: OpenAI, id: string, status: string) {
  await expect.poll(async () => (await client.batches.retrieve(id)).status).toBe(status)
  return client.batches.retrieve(id)
}

/** A line of an output or error file. */
export interface OutputLine {
  id: string
  custom_id: string
  response: { status_code: number; request_id: string; body: Record<string, unknown> } | null
  error: { code: string } | null
}

/** The lines of an output or error file. */
export async function readLines(
  client: OpenAI,
  fileId: string | null | undefined,
): Promise<OutputLine[]> {
  if (typeof fileId !== 'string') return []
  const text = await (await client.files.content(fileId)).text()
  return text
    .trimEnd()
    .split('\n')
    .map((json) => JSON.parse(json))
}

/** Names of this many requests. */
export const ids = (count: number) => Array.from({ length: count }, (_, at) => `r${at}`)
