import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

let tiers: Tiers
let dropDatabase: () => Promise<void>
let folder: string

beforeAll(async () => {
  const made = await createDatabase()
  dropDatabase = made.drop
  folder = await mkdtemp(join(tmpdir(), 'millrace-openapi-'))
  tiers = await startTiers({
    ...{ databaseUrl: made.url, redisUrl: inject('redisUrl'), folder, keyPrefix: freshPrefix() },
  })
}, 90_000)

afterAll(async () => {
  await tiers?.stop()
  await dropDatabase?.()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

describe('the OpenAPI document', () => {
  it('holds schemas that are JSON Schema: requests are checked by the same ones', async () => {
    const document: unknown = await (await fetch(`${tiers.url}/openapi.json`)).json()
    const schemas = [...schemasOf(document)]
    expect(schemas.length).toBeGreaterThan(300)
    const ajv = new Ajv2020({ strict: false, logger: false })
    for (const schema of schemas) {
      const isValid = ajv.validateSchema(schema)
      expect(isValid, `${ajv.errorsText(ajv.errors)}: ${JSON.stringify(schema)}`).toBe(true)
    }
  })
})

describe('the description of a body', () => {
  const bodyOf = async (path: string, type = 'application/json') => {
    const document = (await (await fetch(`${tiers.url}/openapi.json`)).json()) as BodyDocument
    const { requestBody } = defined(document.paths[path]).post
    const validate = new Ajv2020({ strict: false, logger: false, validateFormats: false })
    return { requestBody, accepts: validate.compile(defined(requestBody.content[type]).schema) }
  }

  it.each<[string, object, object]>([
    ['/v1/activities', { type: 'Like' }, {}],
    ['/v1/activities', { activities: [{ type: 'Like' }] }, { activities: [{}] }],
    ['/v1/tokenize', { model: 'm', prompt: 'x' }, { model: 'm' }],
    ['/v1/tokenize', { model: 'm', messages: [{ role: 'user', content: 'x' }] }, { model: 'm' }],
    ['/v1/rerank', { query: 'q', texts: ['a'] }, { query: 'q', model: 'm' }],
    ['/v1/score', { text_1: 'q', text_2: 'a' }, { text_1: 'q' }],
    ...['tool', 'user'].map((role): [string, object, object] => [
      '/v1/chat/completions',
      { model: 'm', messages: [{ role, content: 'x', tool_call_id: 'c' }] },
      { model: 'm', messages: [{ role, tool_call_id: 'c' }] },
    ]),
  ])('of %s accepts %j and not %j', async (path, right, wrong) => {
    const { accepts, requestBody } = await bodyOf(path)
    expect(requestBody.required).toBe(true)
    expect([accepts(right), accepts(wrong)]).toEqual([true, false])
  })

  it.each(['/v1/files', '/v1/images/edits', '/v1/audio/transcriptions'])(
    'of %s is required and has no null in its form',
    async (path) => {
      const { requestBody } = await bodyOf(path, 'multipart/form-data')
      expect(requestBody.required).toBe(true)
      expect(JSON.stringify(requestBody)).not.toMatch(/null/)
    },
  )
})

interface BodyDocument {
  readonly paths: Readonly<
    Record<
      string,
      {
        readonly post: {
          readonly requestBody: {
            readonly required?: boolean
            readonly content: Readonly<Record<string, { readonly schema: object }>>
          }
        }
      }
    >
  >
}

/** Every `schema` of parameters, bodies and answers. */
function* schemasOf(node: unknown): Generator<object> {
  if (typeof node !== 'object' || node === null) return
  for (const [name, value] of Object.entries(node)) {
    if (name === 'schema' && typeof value === 'object' && value !== null) yield value
    else yield* schemasOf(value)
  }
}
