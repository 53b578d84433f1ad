#!/usr/bin/env node
// Installs the dependencies when the lockfile changed, then runs the target under the project's own Node.
// Plain JavaScript without dependencies: it must run on the Node that the machine happens to have.
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const NODE_MAJOR_MIN = 24
const LOCK_STALE_MS = 10 * 60_000

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const stamp = join(root, 'node_modules', '.installed')
const lock = join(root, '.install.lock')

installWhenChanged()
run(process.argv.slice(2))

function installWhenChanged() {
  const wanted = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex')
  const isInstalled = () => existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted
  if (isInstalled()) return
  takeLock()
  try {
    // Another start may have done it while this one waited.
    if (isInstalled()) return
    console.error('installing the dependencies (npm ci) …')
    const npm = spawnSync('npm', ['ci', '--ignore-scripts'], {
      cwd: root,
      stdio: ['ignore', 2, 2],
      shell: process.platform === 'win32',
    })
    if (npm.status !== 0) fail('npm ci failed; see above')
    writeFileSync(stamp, wanted)
  } finally {
    rmSync(lock, { recursive: true, force: true })
  }
}

/** A directory is made by one process only; one that is too old was left behind by a crash. */
function takeLock() {
  for (;;) {
    try {
      mkdirSync(lock)
      return
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    const madeAt = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? 0
    if (Date.now() - madeAt > LOCK_STALE_MS) rmSync(lock, { recursive: true, force: true })
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
  }
}

function run(args) {
  const own = join(root, 'node_modules', '.bin', process.platform === 'win32' ? 'node.exe' : 'node')
  const node = existsSync(own) ? own : process.execPath
  if (node === process.execPath && Number(process.versions.node.split('.')[0]) < NODE_MAJOR_MIN) {
    fail(
      `Node ${process.version} is too old for this platform: install Node ${NODE_MAJOR_MIN} or newer`,
    )
  }
  const child = spawn(node, args.map(fromRoot), {
    stdio: 'inherit',
    env: {
      ...process.env,
      PATH: `${join(root, 'node_modules', '.bin')}${delimiter}${process.env.PATH ?? ''}`,
      // Model runs take threads of this pool; files, names and hashes need some besides.
      UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? '16',
    },
  })
  // A terminal sends Ctrl-C to the whole group; the child decides when to end.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal)
    })
  }
  child.on('error', (error) => fail(error.message))
  child.on('exit', (code, signal) => {
    process.exit(code ?? 128 + (constants.signals[signal ?? ''] ?? 1))
  })
}

/** Paths of the project are relative to it, whatever folder the user is in. */
function fromRoot(argument) {
  const path = join(root, argument)
  return /\.(ts|mjs)$/.test(argument) && existsSync(path) ? path : argument
}

function fail(message) {
  console.error(message)
  process.exit(1)
}
