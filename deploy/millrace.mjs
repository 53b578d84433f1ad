#!/usr/bin/env node
// The command `millrace`: the launcher's command line under the project's own Node.
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
// The npm package carries the project beside this file, see package.mjs.
const packed = join(here, 'project')

process.argv.splice(2, 0, 'launcher/cli.ts')
if (existsSync(packed)) {
  // Settings, data and models.json belong to the folder in which the command is called.
  process.env.MILLRACE_HOME ??= process.cwd()
  await import(pathToFileURL(join(unpack(), 'deploy/bootstrap.mjs')).href)
} else {
  await import('./bootstrap.mjs')
}

/**
 * Copies the project out of `node_modules`, where Node refuses to run TypeScript, once for each
 * version. Two first calls at the same time end with one whole copy.
 */
function unpack() {
  const { version } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'))
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache')
  const folder = join(cache, 'millrace', version)
  if (existsSync(folder)) return folder
  const copy = `${folder}.${process.pid}`
  mkdirSync(dirname(folder), { recursive: true })
  cpSync(packed, copy, { recursive: true })
  try {
    renameSync(copy, folder)
  } catch (error) {
    if (!existsSync(folder)) throw error
    rmSync(copy, { recursive: true })
  }
  return folder
}
