import { defineConfig } from 'vitest/config'

import { CountReporter } from './test/support/count-reporter.ts'

const shared = { environment: 'node', testTimeout: 60_000, hookTimeout: 120_000 } as const

export default defineConfig({
  test: {
    reporters: ['default', new CountReporter()],
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
          include: ['test/integration/**/*.test.ts', 'test/faults/**/*.short.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          // Two workers on two cores; every file has its own database and key prefix.
          maxWorkers: 2,
        },
      },
    ],
  },
})
