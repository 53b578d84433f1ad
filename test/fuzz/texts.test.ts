import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { parseActivities, parseMoment } from '#api/activities/activity.ts'
import { parseJsonBody } from '#api/auth/body-parser.ts'
import { JsonLinesCheck, PURPOSES } from '#api/files/json-lines.ts'
import { parseRange } from '#api/http/byte-range.ts'
import { LineTooLongError, readLines } from '#api/http/lines.ts'
import { JsonCall } from '#api/inference/answers/json-call.ts'
import { formatGoDuration, parseDurationMs } from '#shared/clock.ts'
import { JSON_LIMITS, judgeJson } from '#shared/json.ts'
import { isPublicAddress } from '#shared/net/private-addresses.ts'

import { holds, orRefusal, pieces, RUNS } from './properties.ts'
import { hostileText, hostileValue, toJson } from './values.ts'

const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 200 }).map((list) => Buffer.from(list)),
  fc
    .array(fc.oneof(hostileText, hostileValue.map(toJson), fc.constantFrom('\n', '\r\n', '{', '"')))
    .map((parts) => Buffer.from(parts.join('\n'))),
)

describe('lines', () => {
  it('are the same however the bytes arrive, and respect the maximum length', async () => {
    const linesMax = fc.nat(400)
    await holds(fc.tuple(pieces(bytes), linesMax), async ([{ whole, cut }, bytesMax]) => {
      const raw = whole.toString('latin1').split('\n')
      if (raw.at(-1) === '') raw.pop()
      const isTooLong = raw.some((line) => line.length > bytesMax)
      const read = Array.fromAsync(readLines(streamOf(cut), bytesMax))
      if (isTooLong) return expect(read).rejects.toBeInstanceOf(LineTooLongError)
      const expected = raw.map((line) => Buffer.from(line, 'latin1').toString('utf8'))
      if (expected[0]?.startsWith('\ufeff')) expected[0] = expected[0].slice(1)
      return expect(await read).toEqual(expected)
    })
  })

  it('of JSON are judged the same however the bytes arrive', async () => {
    const purposes = fc.constantFrom(...PURPOSES)
    await holds(fc.tuple(pieces(bytes), purposes), ([{ whole, cut }, purpose]) => {
      const [once, inPieces] = [new JsonLinesCheck(purpose), new JsonLinesCheck(undefined)]
      once.push(whole)
      for (const piece of cut) inPieces.push(piece)
      const [fault, same] = [once.finish(purpose), inPieces.finish(purpose)]
      expect(same?.kind).toBe(fault?.kind)
      if (fault !== undefined) expect(fault.status).toBe(400)
    })
  })
})

async function* streamOf(parts: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* parts
}

describe('JSON bodies', () => {
  it('are refused for their size and for infinite numbers, never for their content', async () => {
    await holds(fc.oneof(hostileValue, fc.jsonValue()).map(toJson), (text) => {
      const { depth, members, values, hasFinite } = measure(JSON.parse(text))
      const isSmall =
        depth <= JSON_LIMITS.depth && members <= JSON_LIMITS.members && values <= JSON_LIMITS.values
      expect(judgeJson(Buffer.from(text)) === undefined).toBe(isSmall && hasFinite)
    })
  })

  it('that are not valid are judged without harm', async () => {
    await holds(bytes, (body) => {
      const fault = judgeJson(body)
      if (fault !== undefined)
        expect(fault.code).toMatch(/^(json_too_complex|number_above_max_value)$/)
    })
  })

  it('of the user server are objects that can be stored, or are refused', async () => {
    const texts = fc.oneof(
      bytes.map(String),
      hostileValue.map((value) => toJson({ a: value })),
    )
    await holds(texts, async (text) => {
      const body = await orRefusal(() => parseJsonBody(text))
      if (body === undefined) return
      expect(Object.getPrototypeOf(body)).toBe(Object.prototype)
      const stored = JSON.stringify(body)
      expect(stored).not.toContain('\\u0000')
      expect(stored).not.toMatch(/\\ud[89a-f]/i)
      expect(stored).not.toContain('"__proto__":')
    })
  })

  it('become activities or a refusal that names a field', async () => {
    const context = { actor: 'org:a', nowMs: 1_700_000_000_000 }
    const names = ['type', 'id', 'actor', 'object', 'published', 'summary', 'generator', 'items']
    const field = fc.constantFrom(...names, 'activities', 'orderedItems', '@context')
    const bodies = fc.oneof(hostileValue, fc.dictionary(field, hostileValue))
    await holds(bodies, async (body) => {
      const parsed = await orRefusal(() => parseActivities(JSON.parse(toJson(body)), context))
      for (const activity of parsed?.activities ?? []) {
        expect(activity.type).not.toBe('')
        expect(Number.isSafeInteger(activity.publishedMs)).toBe(true)
      }
    })
  })
})

function measure(whole: unknown) {
  const sum = { depth: 0, members: 0, values: 0, hasFinite: true }
  // Without recursion, since thousands of levels are among the cases.
  const open = [{ value: whole, depth: 1 }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next
    if (typeof value === 'number') sum.hasFinite &&= Number.isFinite(value)
    if (typeof value !== 'object' || value === null) continue
    const inner: unknown[] = Object.values(value)
    sum.depth = Math.max(sum.depth, depth)
    sum.members += Array.isArray(value) ? 0 : inner.length
    // As many as there are brackets and commas.
    sum.values += 1 + Math.max(0, inner.length - 1)
    for (const part of inner) open.push({ value: part, depth: depth + 1 })
  }
  return sum
}

describe('small texts', () => {
  it('are durations that a clock can count, or none', async () => {
    const unit = fc.constantFrom('ns', 'us', 'µs', 'ms', 's', 'm', 'h', 'd', '', 'x')
    const number = fc.constantFrom('1', '0', '1.5', '.5', '9'.repeat(400), '-1', '1e9', '00')
    const composed = fc
      .array(fc.tuple(number, unit), { maxLength: 4 })
      .map((parts) => parts.flat().join(''))
    await holds(fc.oneof(hostileText, composed, fc.constant('1h'.repeat(5000))), (text) => {
      const ms = parseDurationMs(text)
      if (ms !== undefined) expect(ms >= 0 && Number.isFinite(ms)).toBe(true)
    })
    await holds(fc.nat(1e9), (ms) => {
      const again = parseDurationMs(formatGoDuration(ms))
      expect(Math.abs((again ?? 0) - ms)).toBeLessThanOrEqual(10)
    })
  })

  it.each(['9'.repeat(400), `${'9'.repeat(400)}h`])(
    'too long to be a number are no duration',
    (text) => {
      expect(parseDurationMs(text)).toBeUndefined()
    },
  )

  it('that ask for the last zero bytes are a range that no file has', () => {
    expect(parseRange('bytes=-0', 10)).toBe('unsatisfiable')
    expect(parseRange('bytes=-000', 1)).toBe('unsatisfiable')
  })

  it('are ranges within the file, or none', async () => {
    const number = fc.oneof(fc.nat(20).map(String), fc.constantFrom('', '9'.repeat(16), '-1', '٣'))
    const composed = fc.tuple(number, number).map(([from, to]) => `bytes=${from}-${to}`)
    const sizes = fc.oneof(fc.nat(20), fc.constantFrom(0, 1, 2 ** 40))
    await holds(fc.tuple(fc.oneof(composed, hostileText), sizes), ([header, size]) => {
      const range = parseRange(header, size)
      if (range === undefined || range === 'unsatisfiable') return
      expect(range.start).toBeGreaterThanOrEqual(0)
      expect(range.end).toBeGreaterThanOrEqual(range.start)
      expect(range.end).toBeLessThan(size)
    })
  })

  it('are dates of the calendar, or refused', async () => {
    const part = fc.constantFrom('00', '01', '02', '12', '13', '29', '30', '31', '60', '99', '24')
    const composed = fc
      .tuple(fc.constantFrom('2024', '2023', '0000', '9999', '1970'), part, part, part, part)
      .map(([year, month, day, hour, minute]) => `${year}-${month}-${day}T${hour}:${minute}:00Z`)
    await holds(fc.oneof(composed, hostileText), async (text) => {
      const ms = await orRefusal(() => parseMoment(text, 'published'))
      if (ms === undefined) return
      const date = new Date(ms).toISOString()
      // A leap second and the hour 24 belong to the next minute.
      if (/^\d{4}-\d\d-\d\dT[01]\d:[0-5]\d:[0-5]\dZ$/.test(text)) {
        expect(date.slice(0, 19)).toBe(text.slice(0, 19))
      }
    })
  })

  it('are private addresses under every disguise', async () => {
    const hosts = ['127.0.0.1', '10.1.2.3', '169.254.169.254', '192.168.0.1', '172.16.9.9']
    await holds(fc.tuple(fc.constantFrom(...hosts), hostileText), ([host, text]) => {
      const [a, b, c, d] = host.split('.').map(Number) as [number, number, number, number]
      const hex = `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
      const forms = [host, `::ffff:${host}`, `::ffff:${hex}`, `::${hex}`, `64:ff9b::${hex}`]
      for (const form of [...forms, `2002:${hex}::`, `${host}.`, text]) {
        expect([form, isPublicAddress(form)]).toEqual([form, false])
      }
    })
  })

  it('are tool calls, read the same however they arrive', async () => {
    const whole = fc.oneof(
      fc
        .tuple(hostileText, hostileValue)
        .map(
          ([name, value]) =>
            `{"name": ${JSON.stringify(name)}, "arguments": {"a": ${toJson(value)}}}`,
        ),
      bytes.map(String),
    )
    await holds(
      fc.tuple(whole, fc.array(fc.nat(), { maxLength: 6 })),
      ([text, places]) => {
        const ends = places.map((place) => place % (text.length + 1)).toSorted((a, b) => a - b)
        const cut = [...ends, text.length].map((end, at) => text.slice(ends[at - 1] ?? 0, end))
        expect(readCall(cut)).toEqual(readCall([text]))
      },
      RUNS,
    )
  })
})

function readCall(parts: readonly string[]) {
  const body = new JsonCall('<tool_call>')
  const events = parts.flatMap((part) => body.push(part))
  const { events: last, rejected } = body.finish()
  const all = [...events, ...last]
  return {
    name: all.flatMap((event) => ('name' in event ? [event.name] : [])),
    arguments: canonical(
      all.map((event) => ('arguments' in event ? event.arguments : '')).join(''),
    ),
    rejected,
  }
}

/** A call that is long before its arguments begin is read whole, and its arguments written anew. */
function canonical(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text))
  } catch {
    return text
  }
}
