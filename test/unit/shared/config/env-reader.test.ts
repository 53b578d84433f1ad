import { describe, expect, it } from 'vitest'

import { loadConfig } from '#shared/config/config.ts'
import { ConfigError, EnvReader } from '#shared/config/env-reader.ts'

const ABOUT = { about: 'a setting' }

describe('the environment reader', () => {
  it('takes the first spelling that is set and treats an empty value as unset', () => {
    const env = new EnvReader({ AUTH_API_PORT: '', PORT: '9000' })
    expect(env.int(['AUTH_API_PORT', 'PORT'], { ...ABOUT, fallback: 1 })).toBe(9000)
  })

  it.each([
    ['TRUE', true],
    ['1', true],
    ['off', false],
    ['no', false],
  ])('reads %s as %s', (text, expected) => {
    expect(new EnvReader({ A: text }).bool('A', { ...ABOUT, fallback: !expected })).toBe(expected)
  })

  it('splits character sets at colons that no backslash escapes', () => {
    const env = new EnvReader({ A: 'abc:0-9:\\::!' })
    expect(env.colonSets('A', ABOUT)).toEqual(['abc', '0-9', ':', '!'])
  })

  it('collects every problem instead of stopping at the first', () => {
    const env = new EnvReader({ A: 'x', B: 'maybe', C: 'blue', D: 'soon', E: 'not a url' })
    env.int('A', { ...ABOUT, fallback: 1 })
    env.bool('B', { ...ABOUT, fallback: true })
    env.oneOf('C', ['red', 'green'], { ...ABOUT, fallback: 'red' })
    env.seconds('D', { ...ABOUT, fallback: 1 })
    env.url('E', ABOUT)
    env.required('F', ABOUT)
    expect(env.problems.map((problem) => problem[0])).toEqual(['A', 'B', 'C', 'D', 'E', 'F'])
  })

  it.each([
    ['3650d', false, 315_360_000],
    ['36501d', false, undefined],
    ['20d', true, 1_728_000],
    // Node would let such a timer fire at once.
    ['25d', true, undefined],
  ])('takes %s for a duration (waited for: %s) as %s', (text, isTimer, expected) => {
    const env = new EnvReader({ A: text })
    const seconds = env.seconds('A', { ...ABOUT, fallback: 1, isTimer })
    if (expected === undefined)
      expect(env.problems).toEqual([expect.stringMatching(/^A must be at most/)])
    else expect([seconds, env.problems]).toEqual([expected, []])
  })

  it('names variables of our prefixes that mean nothing', () => {
    const env = new EnvReader({ AUTH_SITE_ULR: 'x', PATH: '/bin', AUTH_SITE_URL: 'y' })
    env.string('AUTH_SITE_URL', ABOUT)
    expect(env.unknownNames(['AUTH_'])).toEqual(['AUTH_SITE_ULR'])
  })
})

describe('the configuration', () => {
  it('reports every wrong setting at once', () => {
    const load = () => loadConfig({ PORT: 'many', LOG_LEVEL: 'loud' })
    expect(load).toThrow(ConfigError)
    for (const name of ['PORT', 'LOG_LEVEL', 'AUTH_DB_DATABASE_URL']) {
      expect(load).toThrow(new RegExp(`^  ${name} (must be|is required)`, 'm'))
    }
  })
})
