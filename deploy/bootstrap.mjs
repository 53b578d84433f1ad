#!/usr/bin/env node
// Installs the dependencies when the lockfile changed, then runs the target under the project's own
// Node. Plain JavaScript without dependencies: it must run on the Node that the machine happens to
// have.
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const NODE_MAJOR_MIN = 24
const LOCK_STALE_MS = 10 * 60_000
const PID_WRITTEN_WITHIN_MS = 5000
const STATUS_OF_NO_COMMAND = 127 // as shells report it
// npm continues when this process is killed. Its process id keeps the next start from installing at
// the same time.
const RECORDED_INSTALLATION = 'echo $$ > "$1"; shift; exec npm "$@"'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
// The npm package comes without tests and needs none of their packages.
const isWhole = existsSync(join(root, 'test'))
const NPM_CI = ['ci', '--ignore-scripts', '--loglevel=error', ...(isWhole ? [] : ['--omit=dev'])]
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
  let problem
  try {
    // Another start may have installed them while this one waited.
    if (!isInstalled()) problem = install(wanted)
  } finally {
    rmSync(lock, { recursive: true, force: true })
  }
  if (problem !== undefined) fail(problem)
}

function install(wanted) {
  console.error('installing the dependencies (npm ci) …')
  const options = { cwd: root, stdio: ['ignore', 2, 2] }
  const npm =
    process.platform === 'win32'
      ? spawnSync('npm', NPM_CI, { ...options, shell: true })
      : spawnSync('sh', ['-c', RECORDED_INSTALLATION, 'sh', join(lock, 'npm'), ...NPM_CI], options)
  if (npm.error !== undefined) return `npm cannot be run: ${npm.error.message}`
  if (npm.status === STATUS_OF_NO_COMMAND) return 'npm cannot be run: it is not on the PATH'
  if (npm.status !== 0) return 'npm ci failed; see above'
  // Written last, so that an interrupted installation is repeated.
  writeFileSync(stamp, wanted)
}

/** Only one process can create the directory. A lock whose process has ended is stale. */
function takeLock() {
  let isAnnounced = false
  for (;;) {
    try {
      mkdirSync(lock)
      writeFileSync(join(lock, 'pid'), String(process.pid))
      return
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    if (isAbandoned()) {
      rmSync(lock, { recursive: true, force: true })
      continue
    }
    if (!isAnnounced) console.error('waiting for another start to install the dependencies …')
    isAnnounced = true
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
  }
}

function isAbandoned() {
  const madeAt = statSync(lock, { throwIfNoEntry: false })?.mtimeMs
  if (madeAt === undefined) return false
  const age = Date.now() - madeAt
  if (age > LOCK_STALE_MS) return true
  const states = ['pid', 'npm'].map(stateOf)
  return !states.includes('alive') && (states[0] === 'gone' || age > PID_WRITTEN_WITHIN_MS)
}

/**
 * The state of the process whose id this file of the lock holds; `unknown` before it is written.
 */
function stateOf(name) {
  try {
    const pid = Number(readFileSync(join(lock, name), 'utf8'))
    if (!(pid > 0)) return 'unknown'
    process.kill(pid, 0)
    return 'alive'
  } catch (error) {
    if (error.code === 'ENOENT') return 'unknown'
    // A process of another user is alive as well.
    return error.code === 'ESRCH' ? 'gone' : 'alive'
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
      // Model runs occupy threads of this pool; files, DNS and hashes need some as well.
      UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? '16',
      // The C library creates up to eight heaps per core, and each keeps the memory that threads
      // freed.
      MALLOC_ARENA_MAX: process.env.MALLOC_ARENA_MAX ?? '2',
      // Keeps compiled code, so that two thousand files are not compiled at every start.
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(root, 'node_modules', '.cache'),
      // Without a limit V8 lets young objects fill up to 128 MiB before it collects. A given option
      // wins.
      NODE_OPTIONS: `--max-semi-space-size=16 ${process.env.NODE_OPTIONS ?? ''}`.trim(),
      // Turns ONNX Runtime's telemetry off in every process that loads it.
      ORT_DISABLE_TELEMETRY: process.env.ORT_DISABLE_TELEMETRY ?? '1',
    },
  })
  // A terminal sends Ctrl-C to the whole group; the child decides when to end.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal)
    })
  }
  stopWithNpm(child)
  child.on('error', (error) => fail(error.message))
  child.on('exit', (code, signal) => {
    process.exit(code ?? 128 + (constants.signals[signal ?? ''] ?? 1))
  })
}

/**
 * npm forwards no signal when it is killed, and its shell may outlive it. Therefore the child is
 * stopped as soon as either of the two has ended.
 */
function stopWithNpm(child) {
  if (process.env.npm_lifecycle_event === undefined) return
  const ancestors = () => `${process.ppid} ${parentOf(process.ppid)}`
  const atStart = ancestors()
  setInterval(() => {
    if (ancestors() !== atStart) child.kill('SIGTERM')
  }, 500).unref()
}

/** The parent of a process; empty where the system does not report it. */
function parentOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]
  } catch {
    return ''
  }
}

/** Resolves paths of the project, independent of the working directory. */
function fromRoot(argument) {
  const path = join(root, argument)
  return /\.(ts|mjs)$/.test(argument) && existsSync(path) ? path : argument
}

function fail(message) {
  console.error(message)
  process.exit(1)
}
