import { defineConfig } from 'vitest/config'

import { CountReporter } from './test/support/count-reporter.ts'

// Asked for by name, the faults run in full; in a run of everything they run in their short form.
const faultScale = process.argv.includes('faults') ? 'full' : 'short'

// One seed for every random case of a run; a run that fails prints the command that repeats it.
const seed = process.env.FUZZ_SEED ?? String(Date.now() % 2 ** 31)
const env = { FUZZ_SEED: seed }

const shared = {
  ...{ environment: 'node', testTimeout: 60_000, hookTimeout: 120_000, env },
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
          // Three workers on two cores, since files wait for other processes a third of their time;
          // every file has its own database and key prefix.
          maxWorkers: 3,
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
          // One after another: several of them measure how long something takes.
          maxWorkers: 1,
        },
      },
    ],
  },
})
