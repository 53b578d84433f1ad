import { readFileSync } from 'node:fs'

import { defineConfig, type ViteUserConfig } from 'vitest/config'

import base from '../../vitest.config.ts'
import { applyMutation, readMutation } from './mutation.ts'

const mutation = readMutation(process.env)
// Each project is a server of its own and needs the plugin itself.
const projects = (base.test?.projects ?? []) as ViteUserConfig[]

/** The suite with one file changed while it is loaded; nothing is written to the disk. */
export default defineConfig({
  root: `${import.meta.dirname}/../..`,
  test: {
    projects: projects.map((project) => ({
      ...project,
      plugins: [
        {
          name: 'mutation',
          enforce: 'pre' as const,
          transform(code: string, id: string) {
            if (id !== mutation.file) return undefined
            // Vite reads scripts of pages by a call that has changed them already.
            const isChanged = code !== readFileSync(mutation.file, 'utf8')
            return isChanged ? undefined : applyMutation(code, mutation)
          },
        },
      ],
      test: { ...project.test, fsModuleCache: false, bail: 1 },
    })),
  },
})
