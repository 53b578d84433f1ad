import { relative } from 'node:path'

import type { Reporter, TestModule } from 'vitest/node'

/** Settings that decide which random cases a run tries. */
const RANDOM = ['FUZZ_REQUESTS', 'FUZZ_RUNS', 'FUZZ_ONLY', 'FAULT_SCALE'] as const

/**
 * Ends a run with the line `N passed, N failed`, which continuous integration reads; of a run that
 * failed, also with the command that repeats each file with the same random cases.
 */
export class CountReporter implements Reporter {
  readonly #seed: string

  constructor(seed: string) {
    this.#seed = seed
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    let passed = 0
    // An error outside of any test, and a file that could not be read, are failures too.
    let failed = errors.length
    const skipped: string[] = []
    for (const module of modules) {
      const before = passed + failed
      for (const test of module.children.allTests()) {
        if (test.result().state === 'passed') passed += 1
        if (test.result().state === 'failed') failed += 1
        const { note } = test.result() as { readonly note?: string }
        // Without a note it was left out by a name on the command line.
        if (note !== undefined) skipped.push(`skipped: ${test.fullName} (${note})`)
      }
      if (!module.ok() && passed + failed === before) failed += 1
    }
    // Missing services of this machine are reported at the end, where they are read.
    for (const line of skipped) process.stdout.write(`\n${line}`)
    if (skipped.length > 0) process.stdout.write(`\n${skipped.length} skipped\n`)
    process.stdout.write(`\n${passed} passed, ${failed} failed\n`)
    if (failed > 0) this.#printCommands(modules.filter((module) => !module.ok()))
  }

  #printCommands(failed: readonly TestModule[]): void {
    const settings = [`FUZZ_SEED=${this.#seed}`]
    for (const name of RANDOM) {
      const value = process.env[name]
      if (value !== undefined) settings.push(`${name}='${value}'`)
    }
    // An error outside of any test belongs to no file: the whole run repeats it.
    const files =
      failed.length === 0 ? [''] : failed.map(({ moduleId }) => ` -- ${relative('', moduleId)}`)
    for (const file of files)
      process.stdout.write(`repeat: ${settings.join(' ')} npm test${file}\n`)
  }
}
