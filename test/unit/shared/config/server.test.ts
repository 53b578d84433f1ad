import { describe, expect, it } from 'vitest'

import { EnvReader } from '#shared/config/env-reader.ts'
import { readServerConfig, readSurfaces } from '#shared/config/server.ts'

describe('the admin token', () => {
  it.each([
    ['may be absent', undefined, []],
    ['may be empty', '', []],
    ['is refused with 15 characters', 'x'.repeat(15), [expect.stringContaining('16 characters')]],
    ['is taken with 16 characters', 'x'.repeat(16), []],
  ])('%s', (_title, token, problems) => {
    const env = new EnvReader({
      MILLRACE_URL_SIGNING_SECRET: 'secret',
      ...(token !== undefined && { MILLRACE_ADMIN_TOKEN: token }),
    })
    readServerConfig(env)
    expect(env.problems).toEqual(problems)
    // A refused value is a secret all the same.
    if (token) expect(env.problems.join()).not.toContain(token)
  })
})

describe('MILLRACE_SURFACES', () => {
  const read = (value: string) => {
    const env = new EnvReader({ MILLRACE_SURFACES: value })
    return { surfaces: readSurfaces(env), problems: env.problems }
  }

  it('lists the served surfaces, all of them by default', () => {
    const all = ['inference', 'users', 'console', 'playground']
    expect(read('').surfaces).toEqual(all)
    expect(read(' playground, users').surfaces).toEqual(['users', 'playground'])
  })

  it.each([
    ['users,mail', /MILLRACE_SURFACES may name inference, .*, not "mail"/],
    [',', /not nothing/],
  ])('refuses %j', (value, problem) => {
    expect(read(value).problems).toEqual([expect.stringMatching(problem)])
  })
})
