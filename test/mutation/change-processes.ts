import { registerHooks } from 'node:module'
import { pathToFileURL } from 'node:url'

import { applyMutation, readMutation } from './mutation.ts'

const mutation = readMutation(process.env)
const changed = pathToFileURL(mutation.file).href

// Processes that a test starts load the product without Vite. NODE_OPTIONS hands them this file.
registerHooks({
  load(url, context, next) {
    const loaded = next(url, context)
    if (url !== changed) return loaded
    return { ...loaded, source: applyMutation(String(loaded.source), mutation) }
  },
})
