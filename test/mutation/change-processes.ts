import fs from 'node:fs/promises'
import { registerHooks, syncBuiltinESMExports } from 'node:module'
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

// The API reads the scripts of its pages as files.
if (mutation.file.endsWith('.js')) {
  const { readFile } = fs
  fs.readFile = (async (...args: Parameters<typeof readFile>) => {
    const content = await readFile(...args)
    if (args[0] !== mutation.file) return content
    const text = applyMutation(content.toString(), mutation)
    return Buffer.isBuffer(content) ? Buffer.from(text) : text
  }) as typeof readFile
  syncBuiltinESMExports()
}
