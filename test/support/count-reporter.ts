import type { Reporter, TestModule } from 'vitest/node'

/** Ends a run with the line `N passed, N failed`, which continuous integration reads. */
export class CountReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    let passed = 0
    // An error outside of any test, and a file that could not be read, are failures too.
    let failed = errors.length
    for (const module of modules) {
      const before = passed + failed
      for (const test of module.children.allTests()) {
        if (test.result().state === 'passed') passed += 1
        if (test.result().state === 'failed') failed += 1
      }
      if (!module.ok() && passed + failed === before) failed += 1
    }
    process.stdout.write(`\n${passed} passed, ${failed} failed\n`)
  }
}
