import { mkdir, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'

import { describeFigure, isMet, type Figure } from './figure.ts'
import { benchNoop } from './noop.ts'
import { benchStreams } from './streams.ts'

const BENCHES: Readonly<Record<string, () => Promise<readonly Figure[]>>> = {
  noop: async () => [await benchNoop()],
  streams: benchStreams,
}

const wanted = process.argv[2]
const figures: Figure[] = []
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted !== undefined && wanted !== name) continue
  for (const figure of await bench()) {
    figures.push(figure)
    console.log(describeFigure(figure))
  }
}
await mkdir('bench/results', { recursive: true })
const machine = { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version }
const file = `bench/results/${new Date().toISOString().replaceAll(':', '-')}.json`
await writeFile(file, JSON.stringify({ machine, figures }, null, 2))
console.log(file)
process.exit(figures.every(isMet) ? 0 : 1)
