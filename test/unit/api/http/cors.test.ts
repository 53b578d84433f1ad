import { afterEach, describe, expect, it } from 'vitest'

import { buildApp } from '#api/server/app.ts'
import { createLogger } from '#shared/logger.ts'
import { serverConfig } from '#test/support/server-config.ts'

const apps: { close(): Promise<void> }[] = []

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

/** The request headers that a browser is allowed, of those that it asks for. */
async function openPreflight(corsAllowedHeaders: readonly string[]) {
  const app = await buildApp({
    server: serverConfig(),
    version: 'test',
    publicUrl: 'http://localhost',
    log: createLogger({ level: 'silent' }),
    corsAllowedHeaders,
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [],
  })
  apps.push(app)
  return async (url: string, asked: readonly string[]) => {
    const answer = await app.inject({
      method: 'OPTIONS',
      url,
      headers: {
        origin: 'https://site.test',
        'access-control-request-method': 'POST',
        'access-control-request-headers': asked.join(', '),
      },
    })
    expect(answer.statusCode).toBe(204)
    expect(answer.headers['access-control-allow-origin']).toBe('*')
    const allowed = String(answer.headers['access-control-allow-headers']).toLowerCase()
    return asked.filter((name) => allowed.split(/, */).includes(name))
  }
}

const SUPABASE = [
  'apikey',
  'authorization',
  'content-type',
  'x-client-info',
  'x-supabase-api-version',
]
const OPENAI = [
  'authorization',
  'content-type',
  'x-stainless-lang',
  'x-stainless-new',
  'openai-beta',
]

describe('the headers that a browser may send', () => {
  it('may be any, unless the operator names some', async () => {
    const preflight = await openPreflight([])
    for (const path of ['/signup', '/auth/v1/token?grant_type=password', '/v1/models']) {
      const asked = [...SUPABASE, ...OPENAI, 'x-mine']
      expect(await preflight(path, asked)).toEqual(asked)
    }
  })

  it('include for the user server the usual ones and those that the operator names', async () => {
    const preflight = await openPreflight(['X-Tenant', 'x-region'])
    for (const path of ['/signup', '//token?grant_type=password', '/auth/v1/user', '/v12']) {
      const asked = [...SUPABASE, 'x-tenant', 'x-region']
      expect(await preflight(path, [...asked, 'x-mine'])).toEqual(asked)
    }
  })

  it('may be any below /v1 in any case, as OpenAI clients need', async () => {
    const preflight = await openPreflight(['x-tenant'])
    for (const path of ['/v1/chat/completions', '//v1/models?x=/auth']) {
      expect(await preflight(path, [...OPENAI, 'x-mine'])).toEqual([...OPENAI, 'x-mine'])
    }
  })
})
