import { describe, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const CALLER = { authorization: 'Bearer sk-caller-0123456789abcdef' }

describe('rotating a key', () => {
  it('gives it a new secret and ends the old one', async () => {
    const { post, keys, clock } = await openSurface()
    keys.add('sk-caller-0123456789abcdef', { id: 'key_caller' })
    keys.add('sk-old-0123456789abcdefgh', { id: 'key_old', name: 'CI', scopes: ['chat'] })
    const rotated = await post('/v1/api_keys/key_old/rotate', {}, CALLER)
    expect(rotated.statusCode).toBe(200)
    const body = rotated.json() as { secret: string; id: string; name: string; scopes: string[] }
    expect(body).toMatchObject({ id: 'key_old', name: 'CI', scopes: ['chat'] })
    clock.nowMs += 1000
    const use = (secret: string) =>
      post('/v1/api_keys/key_old/rotate', {}, { authorization: `Bearer ${secret}` })
    expect((await use('sk-old-0123456789abcdefgh')).statusCode).toBe(401)
    expect((await use(body.secret)).statusCode).toBe(403)
  })

  it.each([
    ['scopes', { scopes: ['keys'] }, { scopes: null }],
    ['models', { modelIds: ['a'] }, { modelIds: ['a', 'b'] }],
    ['expiry', { expiresAt: new Date(4e12) }, { expiresAt: null }],
  ])('is refused when the key has more %s than the caller', async (_, caller, other) => {
    const { post, keys } = await openSurface()
    keys.add('sk-caller-0123456789abcdef', { id: 'key_caller', ...caller })
    keys.add('sk-old-0123456789abcdefgh', { id: 'key_old', ...other })
    const refused = await post('/v1/api_keys/key_old/rotate', {}, CALLER)
    expect(refused.statusCode).toBe(403)
    expect(refused.json()).toMatchObject({ error: { code: 'insufficient_permissions' } })
  })

  it("makes it the key of the caller's creator, as every key that a key creates is", async () => {
    const { post, keys } = await openSurface()
    keys.add('sk-caller-0123456789abcdef', { id: 'key_caller', createdBy: 'user-one' })
    keys.add('sk-old-0123456789abcdefgh', { id: 'key_old' })
    const rotated = await post('/v1/api_keys/key_old/rotate', {}, CALLER)
    const created = await post('/v1/api_keys', { name: 'x' }, CALLER)
    const made = [rotated, created].map((answer) => (answer.json() as { id: string }).id)
    const stored = [...keys.bySecret.values()].filter(({ id }) => made.includes(id))
    expect(stored.map(({ createdBy }) => createdBy)).toEqual(['user-one', 'user-one'])
  })

  it("does not find another organization's key", async () => {
    const { post, keys } = await openSurface()
    keys.add('sk-caller-0123456789abcdef', { id: 'key_caller' })
    keys.add('sk-old-0123456789abcdefgh', { id: 'key_other', organizationId: 'org-other' })
    expect((await post('/v1/api_keys/key_other/rotate', {}, CALLER)).statusCode).toBe(404)
  })
})
