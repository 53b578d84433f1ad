#!/usr/bin/env node
// Writes the npm package: `npm run package [-- <folder>]` makes millrace-<version>.tgz in dist/.
//
// The package has no dependencies of its own. It carries the project with its lock file, and the
// command `millrace` installs from that lock, without install scripts, as a clone does (see
// millrace.mjs).
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..')
const CONTENT = [
  ...['api', 'workers', 'shared', 'launcher', 'migrations', 'models', 'deploy'],
  ...[
    'docker-compose.yml',
    'models.json',
    'package.json',
    'package-lock.json',
    '.env.example',
    'LICENSE',
  ],
]
const LEFT_OUT = /^(models\/training|deploy\/(docker|helm|k6))\//

const stage = mkdtempSync(join(tmpdir(), 'millrace-package-'))
try {
  writeStage()
  const dist = resolve(process.argv[2] ?? join(ROOT, 'dist'))
  mkdirSync(dist, { recursive: true })
  const options = { cwd: stage, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }
  const name = execFileSync('npm', ['pack', '--silent', '--pack-destination', dist], options).trim()
  console.log(join(dist, name))
} finally {
  rmSync(stage, { recursive: true })
}

function writeStage() {
  const listed = execFileSync('git', ['ls-files', '-zco', '--exclude-standard', '--', ...CONTENT], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  const files = listed.split('\0').filter((file) => file !== '' && !LEFT_OUT.test(file))
  for (const file of files) {
    cpSync(join(ROOT, file), join(stage, 'project', file), { recursive: true })
  }
  for (const file of ['README.md', 'LICENSE']) cpSync(join(ROOT, file), join(stage, file))
  cpSync(join(ROOT, 'deploy/millrace.mjs'), join(stage, 'millrace.mjs'))
  const { name, version, description, license, engines } = JSON.parse(
    readFileSync(join(ROOT, 'package.json'), 'utf8'),
  )
  const manifest = { name, version, description, license, engines, type: 'module' }
  const bin = { millrace: 'millrace.mjs' }
  writeFileSync(join(stage, 'package.json'), JSON.stringify({ ...manifest, bin }, null, 2))
}
