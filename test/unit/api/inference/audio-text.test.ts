import { describe, expect, it } from 'vitest'

import { languageCode, languageName } from '#api/inference/audio/languages.ts'
import { subRip, webVtt } from '#api/inference/audio/subtitles.ts'

describe('the subtitles', () => {
  it('count hours and keep texts apart from their own marks', () => {
    const cues = [{ start: 3723.0456, end: 360_000, text: ' a --> b\n\n c ' }]
    expect(subRip(cues)).toBe('1\n01:02:03,046 --> 100:00:00,000\na -> b\nc\n\n')
    expect(webVtt(cues)).toBe('WEBVTT\n\n01:02:03.046 --> 100:00:00.000\na -> b\nc\n\n')
    expect([subRip([]), webVtt([])]).toEqual(['', 'WEBVTT\n\n'])
  })

  it('leave out segments without text, and number the rest', () => {
    const cues = ['one', '  ', 'two'].map((text, at) => ({ start: at, end: at + 1, text }))
    expect(subRip(cues)).toBe(
      '1\n00:00:00,000 --> 00:00:01,000\none\n\n2\n00:00:02,000 --> 00:00:03,000\ntwo\n\n',
    )
    expect(webVtt(cues)).not.toContain('00:00:01.000 --> 00:00:02.000')
  })
})

describe('the languages', () => {
  it.each([
    ['en', 'en', 'english'],
    ['JV', 'jw', 'javanese'],
    ['ht', 'ht', 'haitian creole'],
  ])('know %s', (code, known, name) => {
    expect([languageCode(code), languageName(known)]).toEqual([known, name])
  })

  it('include nothing else', () => {
    expect(['toString', 'xx', 'english'].map(languageCode)).toEqual(Array(3).fill(undefined))
  })
})
