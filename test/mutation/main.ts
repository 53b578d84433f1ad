import { spawn, spawnSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { createRandom } from '#test/support/random.ts'

import { findMutants, type Mutant } from './mutants.ts'
import { mutationEnv } from './mutation.ts'
import { relatedTests } from './related-tests.ts'

const ROOT = join(import.meta.dirname, '../..')
const USAGE =
  'npm run test:mutation -- <folder, file or file:line …> [--seed n] [--mutants n] [--tests n] [--service-tests n] [--minutes n]'

const NEEDS_SERVICES = 'test/integration/'
/** A test file in the output of a run that failed. */
const FAILED = /FAIL.*?(test\/\S+?\.test\.ts)/

type Outcome = 'killed' | 'survived' | 'no tests' | 'timed out'

interface Result {
  readonly outcome: Outcome
  /** The first test file that failed. */
  readonly by?: string | undefined
}

interface Drawn extends Mutant {
  readonly file: string
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    mutants: { type: 'string', default: '20' },
    tests: { type: 'string', default: '16' },
    'service-tests': { type: 'string', default: '6' },
    minutes: { type: 'string', default: '30' },
    'timeout-seconds': { type: 'string', default: '240' },
  },
})
await main()

/** Draws mutants of the files, tests each by the tests nearest to it, and lists the survivors. */
async function main(): Promise<void> {
  const drawn = draw(positionals, Number(values.mutants))
  if (drawn.length === 0) throw new Error(USAGE)
  const until = Date.now() + Number(values.minutes) * 60_000
  const counts = new Map<Outcome, number>()
  for (const mutant of drawn) {
    if (Date.now() > until) break
    const { outcome, by = '' } = await tryMutant(mutant)
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1)
    print(`${outcome.padEnd(9)} ${mutant.file}:${mutant.line}  ${mutant.title}  ${by}`.trimEnd())
  }
  const [killed, tried] = [
    (counts.get('killed') ?? 0) + (counts.get('timed out') ?? 0),
    [...counts.values()].reduce((sum, count) => sum + count, 0),
  ]
  print(`seed ${values.seed}: ${killed} of ${tried} killed, of ${drawn.length} drawn`)
}

/**
 * TypeScript files of the product and scripts of its pages in these folders; without any, those
 * that the branch changed.
 */
function filesOf(places: readonly string[]): string[] {
  const args =
    places.length === 0
      ? ['diff', '--name-only', '--diff-filter=d', 'main']
      : ['ls-files', '--', ...places]
  const { stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' })
  return stdout
    .split('\n')
    .filter((path) => /^((api|workers|shared|launcher)\/.*(?<!\.d)\.ts|api\/.*\.js)$/.test(path))
    .filter((path) => statSync(join(ROOT, path)).isFile())
}

/** Mutants of these folders, files and lines (`file:line`). */
function draw(places: readonly string[], count: number): Drawn[] {
  const random = createRandom(Number(values.seed))
  const lines = new Map<string, number>()
  for (const place of places) {
    const [file = '', line] = place.split(':')
    if (line !== undefined) lines.set(file, Number(line))
  }
  const all = filesOf(places.map((place) => place.replace(/:\d+$/, ''))).flatMap((file) =>
    findMutants(readFileSync(join(ROOT, file), 'utf8'))
      .filter(({ line }) => line === (lines.get(file) ?? line))
      .map((mutant) => ({ ...mutant, file })),
  )
  const drawn: Drawn[] = []
  while (drawn.length < count && all.length > 0) {
    drawn.push(...all.splice(Math.floor(random() * all.length), 1))
  }
  return drawn
}

async function tryMutant(mutant: Drawn): Promise<Result> {
  const tests = relatedTests(ROOT, mutant.file)
  const [own, served] = [
    tests.filter((test) => !test.startsWith(NEEDS_SERVICES)).slice(0, Number(values.tests)),
    tests
      .filter((test) => test.startsWith(NEEDS_SERVICES))
      .slice(0, Number(values['service-tests'])),
  ]
  let result: Result = { outcome: 'no tests' }
  // Services are started only for a mutant that the tests without them have not noticed.
  for (const group of [own, served]) {
    if (group.length > 0) result = await tryTests(mutant, group)
    if (result.outcome === 'killed' || result.outcome === 'timed out') break
  }
  return result
}

/** Counts a failure only if its file repeats it alone: a busy machine makes others fail. */
async function tryTests(mutant: Drawn, tests: readonly string[]): Promise<Result> {
  const result = await runTests(mutant, tests)
  const { by } = result
  if (by === undefined || (await runTests(mutant, [by])).outcome !== 'survived') return result
  const rest = tests.filter((test) => test !== by)
  return rest.length > 0 ? tryTests(mutant, rest) : { outcome: 'survived' }
}

async function runTests(
  { file, start, end, replacement }: Drawn,
  tests: readonly string[],
): Promise<Result> {
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
  const config = join(import.meta.dirname, 'vitest.config.ts')
  const child = spawn(
    process.execPath,
    [vitest, 'run', '--config', config, '--reporter=dot', ...tests],
    {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        ...process.env,
        ...mutationEnv({ file: join(ROOT, file), start, end, replacement }),
        FUZZ_SEED: values.seed,
      },
    },
  )
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    child.kill('SIGKILL')
  }, Number(values['timeout-seconds']) * 1000)
  let output = ''
  child.stderr.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  const code = await new Promise<number | null>((resolve) => child.once('exit', resolve))
  clearTimeout(timer)
  if (isLate) return { outcome: 'timed out' }
  if (code === 0) return { outcome: 'survived' }
  return { outcome: 'killed', by: FAILED.exec(output)?.[1] }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
