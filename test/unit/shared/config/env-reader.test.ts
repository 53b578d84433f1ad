import { describe, expect, it } from 'vitest'

import { loadConfig } from '#shared/config/config.ts'
import { ConfigError, EnvReader } from '#shared/config/env-reader.ts'

const ABOUT = { about: 'a setting' }

describe('the environment reader', () => {
  it('uses the first spelling that is set and treats an empty value as unset', () => {
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

  it('reads the names of Supabase’s server if its own are unset', () => {
    const env = new EnvReader({ GOTRUE_A: 'a', GOTRUE_B: 'b', AUTH_B: 'own', GOTRUE_C: 'c' })
    expect(env.string('AUTH_A', ABOUT)).toBe('a')
    expect(env.string(['AUTH_B', 'B'], ABOUT)).toBe('own')
    expect(env.unknownNames(['GOTRUE_'])).toEqual(['GOTRUE_C'])
    expect(env.overruledNames()).toEqual([{ name: 'GOTRUE_B', by: 'AUTH_B' }])
  })
})

describe('the configuration', () => {
  const sound = {
    AUTH_DB_DATABASE_URL: 'postgres://db/x',
    AUTH_JWT_SECRET: 'f'.repeat(64),
    AUTH_SITE_URL: 'http://site',
    AUTH_API_EXTERNAL_URL: 'http://site',
    MILLRACE_URL_SIGNING_SECRET: 'f'.repeat(64),
  }

  it.each([
    ['S3_ENDPOINT', 'minio:9000', 'must be a URL that begins with http:// or https://'],
    ['HF_ENDPOINT', 'localhost:8080', 'must be a URL that begins with http:// or https://'],
    ['HF_ENDPOINT', 'file:///etc/passwd', 'must be a URL that begins with http:// or https://'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318', 'must be a URL that begins with http://'],
    ['AUTH_REQUEST_ID_HEADER', 'x request id', 'must be the name of a header'],
    ['AUTH_RATE_LIMIT_HEADER', 'x-forwarded-für', 'must be the name of a header'],
    ['AUTH_API_HOST', 'http://0.0.0.0', 'must be an address or the name of a machine'],
    ['OTEL_EXPORTER_PROMETHEUS_HOST', 'here, there', 'must be an address or the name of a machine'],
    ['HF_TOKEN', 'hf_hüsh', 'must be of ASCII characters without spaces'],
    ['MILLRACE_BOOTSTRAP_API_KEY', 'my hush key', 'must be of ASCII characters without spaces'],
  ])('refuses %s=%s', (name, value, message) => {
    const load = () => loadConfig({ ...sound, [name]: value })
    expect(load).toThrow(`${name} ${message}`)
    expect(load).not.toThrow(/hush|hüsh/)
  })

  it.each([
    ['AUTH_API_HOST', '::1'],
    ['AUTH_API_HOST', 'api.internal'],
    ['OTEL_EXPORTER_PROMETHEUS_HOST', 'fe80::1%eth0'],
    ['HF_ENDPOINT', 'HTTPS://hf-mirror.com/sub'],
    ['AUTH_RATE_LIMIT_HEADER', 'X-Forwarded-For'],
  ])('takes %s=%s', (name, value) => {
    expect(loadConfig({ ...sound, [name]: value }).warnings).toEqual([])
  })

  it('reports a spelling that another one overrules, and not one that agrees', () => {
    const { config, warnings } = loadConfig({ ...sound, AUTH_API_PORT: '1', PORT: '2' })
    expect(config.server.port).toBe(1)
    expect(warnings).toEqual(['PORT is not read: AUTH_API_PORT is set to something else'])
    const agreeing = { AUTH_API_PORT: '1', PORT: ' 1 ', LOG_LEVEL: 'info', AUTH_LOG_LEVEL: '' }
    expect(loadConfig({ ...sound, ...agreeing }).warnings).toEqual([])
  })

  it('reports all wrong settings together', () => {
    const load = () => loadConfig({ PORT: 'many', LOG_LEVEL: 'loud' })
    expect(load).toThrow(ConfigError)
    for (const name of ['PORT', 'LOG_LEVEL', 'AUTH_DB_DATABASE_URL']) {
      expect(load).toThrow(new RegExp(`^  ${name} (must be|is required)`, 'm'))
    }
  })
})
