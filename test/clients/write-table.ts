import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { CLIENTS, type ClientUnderTest } from './clients.ts'
import type { FeatureResult } from './run-client.ts'

const FILE = join(import.meta.dirname, '../../docs/clients.md')
const BEGIN = '<!-- Written by `npm run test:clients`. -->'
const END = '<!-- End of the table. -->'
/** Features with a column of their own; the others are listed by name. */
const COLUMNS = ['chat', 'stream', 'tools', 'structured', 'embeddings', 'responses', 'errors']
const HEADER = ['client', 'packages', ...COLUMNS, 'also']

/** Replaces the rows of these clients in docs/clients.md and keeps the others. */
export async function writeRows(
  rows: readonly { readonly client: ClientUnderTest; readonly results: readonly FeatureResult[] }[],
): Promise<void> {
  const text = await readFile(FILE, 'utf8')
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`the marks of the table are missing in ${FILE}`)
  const lines = new Map<string, string>()
  for (const line of text.slice(begin, end).split('\n')) {
    const name = /^\| ([a-z\d-]+) \| `/.exec(line)?.[1]
    if (name !== undefined) lines.set(name, line)
  }
  for (const { client, results } of rows) lines.set(client.name, rowOf(client, results))
  const kept = CLIENTS.flatMap(({ name }) => lines.get(name) ?? [])
  const table = [HEADER.join(' | '), HEADER.map(() => '---').join('|')].map((row) => `|${row}|`)
  const written = [BEGIN, '', ...table, ...kept, '', ''].join('\n')
  await writeFile(FILE, text.slice(0, begin) + written + text.slice(end))
}

function rowOf({ name, packages }: ClientUnderTest, results: readonly FeatureResult[]): string {
  const cells = COLUMNS.map((column) => {
    const result = results.find(({ feature }) => feature === column)
    return result === undefined ? '' : markOf(result)
  })
  const others = results
    .filter(({ feature }) => !COLUMNS.includes(feature))
    .map((result) =>
      result.problem === null ? result.feature : `${result.feature} ${markOf(result)}`,
    )
  const versions = packages.map((one) => `\`${one}\``).join(' ')
  return `| ${[name, versions, ...cells, others.join(', ')].join(' | ')} |`
}

function markOf({ problem }: FeatureResult): string {
  return problem === null ? 'yes' : '**no**'
}
