import { fastify } from 'fastify'
import { describe, expect, it } from 'vitest'

import { lateApp } from '#api/http/late-app.ts'

/** An application that counts its answers. */
function openApps() {
  const asked: string[] = []
  const outer = fastify()
  const build = async () => {
    const inner = fastify()
    inner.get('/page', async ({ url }, reply) => {
      asked.push(url)
      return reply.header('etag', '"a"').type('text/html').send('page')
    })
    inner.get('/broken', async ({ url }, reply) => {
      asked.push(url)
      return reply.code(503).send('later')
    })
    return inner
  }
  outer.get('/*', lateApp(build, { isConstant: true }))
  return { outer, asked }
}

describe('a constant application', () => {
  it('answers each path once, for all clients and queries', async () => {
    const { outer, asked } = openApps()
    const urls = Array.from({ length: 20 }, (_, n) => `/page?n=${n}`)
    const answers = await Promise.all(urls.map((url) => outer.inject(url)))
    expect(new Set(answers.map(({ body }) => body))).toEqual(new Set(['page']))
    expect(asked).toEqual(['/page'])
  })

  it('sends nothing to a client that has the page', async () => {
    const { outer } = openApps()
    const headers = { 'if-none-match': '"a"' }
    const { statusCode, body } = await outer.inject({ url: '/page', headers })
    expect([statusCode, body]).toEqual([304, ''])
  })

  it('is asked again after a failure', async () => {
    const { outer, asked } = openApps()
    expect((await outer.inject('/broken')).statusCode).toBe(503)
    expect((await outer.inject('/broken')).statusCode).toBe(503)
    expect(asked).toHaveLength(2)
  })
})
