import { availableParallelism } from 'node:os'

import { defineConfig } from 'vitest/config'

import { CountReporter } from './test/support/count-reporter.ts'

// Asked for by name, the faults run in full; in a run of everything they run in their short form.
const faultScale = process.argv.includes('faults') ? 'full' : 'short'

// One seed for every random case of a run; a run that fails prints the command that repeats it.
const seed = process.env.FUZZ_SEED ?? String(Date.now() % 2 ** 31)
const env = { FUZZ_SEED: seed }

// Three workers on two cores, since files wait for other processes a third of their time. All
// projects have as many, so that they run as one group, without a pause between them.
const workers = Math.max(3, Math.ceil(availableParallelism() * 1.5))

const shared = {
  environment: 'node',
  testTimeout: 60_000,
  hookTimeout: 120_000,
  env,
  maxWorkers: workers,
  // A worker keeps what it imported for its next file: half of a short file's time was importing.
  // Nothing in the product is ambient, and every file has its own database and key prefix.
  isolate: false,
  // As long as a busy machine may need.
  expect: { poll: { timeout: 30_000, interval: 20 } },
} as const

export default defineConfig({
  test: {
    reporters: ['default', new CountReporter(seed)],
    projects: [
      {
        test: {
          ...shared,
          name: 'unit',
          include: ['test/tidy.test.ts', 'test/unit/**/*.test.ts', 'test/golden/**/*.test.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'integration',
          include: ['test/integration/**/*.test.ts', 'test/fuzz/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          setupFiles: ['test/support/closed-connections.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          setupFiles: ['test/support/closed-connections.ts'],
          env: { ...env, FAULT_SCALE: faultScale },
          // Some look at the memory of their own process.
          isolate: true,
          // In full one after another: they report how long something takes.
          ...(faultScale === 'full' ? { maxWorkers: 1 } : {}),
        },
      },
    ],
  },
})
