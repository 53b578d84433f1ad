import { spawn, spawnSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { createRandom } from '../support/random.ts'
import { findMutants, type Mutant } from './mutants.ts'
import { mutationEnv } from './mutation.ts'
import { relatedTests } from './related-tests.ts'

const ROOT = join(import.meta.dirname, '../..')
const USAGE =
  'npm run test:mutation -- <folder or file …> [--seed n] [--mutants n] [--tests n] [--minutes n]'

type Outcome = 'killed' | 'survived' | 'no tests' | 'timed out'

interface Drawn extends Mutant {
  readonly file: string
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    mutants: { type: 'string', default: '20' },
    tests: { type: 'string', default: '12' },
    minutes: { type: 'string', default: '30' },
    'timeout-seconds': { type: 'string', default: '120' },
  },
})
await main()

/** Draws mutants of the files, tests each by the tests nearest to it, and lists the survivors. */
async function main(): Promise<void> {
  const files = filesOf(positionals)
  if (files.length === 0) throw new Error(USAGE)
  const drawn = draw(files, Number(values.mutants))
  const until = Date.now() + Number(values.minutes) * 60_000
  const counts = new Map<Outcome, number>()
  for (const mutant of drawn) {
    if (Date.now() > until) break
    const outcome = await tryMutant(mutant)
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1)
    print(`${outcome.padEnd(9)} ${mutant.file}:${mutant.line}  ${mutant.title}`)
  }
  const [killed, tried] = [
    (counts.get('killed') ?? 0) + (counts.get('timed out') ?? 0),
    [...counts.values()].reduce((sum, count) => sum + count, 0),
  ]
  print(`seed ${values.seed}: ${killed} of ${tried} killed, of ${drawn.length} drawn`)
}

/** TypeScript files of the product in these folders; without any, those that the branch changed. */
function filesOf(places: readonly string[]): string[] {
  const args =
    places.length === 0
      ? ['diff', '--name-only', '--diff-filter=d', 'main']
      : ['ls-files', '--', ...places]
  const { stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' })
  return stdout
    .split('\n')
    .filter((path) => /^(api|workers|shared|launcher)\/.*(?<!\.d)\.ts$/.test(path))
    .filter((path) => statSync(join(ROOT, path)).isFile())
}

function draw(files: readonly string[], count: number): Drawn[] {
  const random = createRandom(Number(values.seed))
  const all = files.flatMap((file) =>
    findMutants(readFileSync(join(ROOT, file), 'utf8')).map((mutant) => ({ ...mutant, file })),
  )
  const drawn: Drawn[] = []
  while (drawn.length < count && all.length > 0) {
    drawn.push(...all.splice(Math.floor(random() * all.length), 1))
  }
  return drawn
}

async function tryMutant({ file, start, end, replacement }: Drawn): Promise<Outcome> {
  const tests = relatedTests(ROOT, file, Number(values.tests))
  if (tests.length === 0) return 'no tests'
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
  const config = join(import.meta.dirname, 'vitest.config.ts')
  const args = ['run', '--config', config, '--reporter=dot', ...tests]
  const child = spawn(process.execPath, [vitest, ...args], {
    cwd: ROOT,
    stdio: 'ignore',
    env: {
      ...process.env,
      ...mutationEnv({ file: join(ROOT, file), start, end, replacement }),
      FUZZ_SEED: values.seed,
    },
  })
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    child.kill('SIGKILL')
  }, Number(values['timeout-seconds']) * 1000)
  const code = await new Promise<number | null>((resolve) => child.once('exit', resolve))
  clearTimeout(timer)
  if (isLate) return 'timed out'
  return code === 0 ? 'survived' : 'killed'
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
