import { expect, it } from 'vitest'

import { openConsole } from './console-stack.ts'

it('serves only the surfaces that MILLRACE_SURFACES names', async () => {
  const { app, close } = await openConsole({ MILLRACE_SURFACES: 'users' })
  try {
    const statusOf = async (url: string) => (await app.inject({ url })).statusCode
    expect(await statusOf('/auth/v1/health')).toBe(200)
    expect(await statusOf('/settings')).toBe(200)
    for (const url of ['/v1/models', '/admin', '/playground']) expect(await statusOf(url)).toBe(404)
  } finally {
    await close()
  }
})
