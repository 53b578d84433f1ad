/** One line of a scrape. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)/g

/** Reads Prometheus' text format. Throws on an invalid line, and on a repeated series. */
export function parseMetrics(text: string): Sample[] {
  const seen = new Set<string>()
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const match = LINE.exec(line)
      if (match === null) throw new Error(`no sample: ${line}`)
      const [, name = '', labels = '', value = ''] = match
      const series = line.slice(0, line.length - value.length)
      if (seen.has(series)) throw new Error(`told twice: ${series}`)
      seen.add(series)
      return { name, labels: parseLabels(labels), value: numberOf(value) }
    })
}

/** Scrapes an address. */
export async function scrape(url: string): Promise<Sample[]> {
  const answer = await fetch(url)
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`)
  return parseMetrics(await answer.text())
}

/** The sum of the samples of a name that carry these labels. */
export function sumOf(
  samples: readonly Sample[],
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  return samples
    .filter((sample) => sample.name === name)
    .filter((sample) =>
      Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
    )
    .reduce((sum, { value }) => sum + value, 0)
}

function parseLabels(text: string): Record<string, string> {
  return Object.fromEntries(
    [...text.matchAll(LABEL)].map(([, key = '', value = '']) => [
      key,
      value.replaceAll('\\n', '\n').replaceAll('\\"', '"').replaceAll('\\\\', '\\'),
    ]),
  )
}

function numberOf(text: string): number {
  if (text === '+Inf') return Number.POSITIVE_INFINITY
  if (text === '-Inf') return Number.NEGATIVE_INFINITY
  return text === 'NaN' || text === 'Nan' ? Number.NaN : Number(text)
}
