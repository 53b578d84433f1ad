import { spawnSync } from 'node:child_process'
import { cp, readFile, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { makeSecrets } from '#launcher/data-dir.ts'
import { readVersion } from '#shared/process.ts'

const PROJECT = join(import.meta.dirname, '../..')
const SETTINGS_FILE = 'millrace.env'

const TARGETS: Readonly<Record<string, (folder: string) => Promise<readonly string[]>>> = {
  compose: writeCompose,
  systemd: writeSystemd,
}

/**
 * `millrace init compose|systemd`: writes the files that run this version; existing files are
 * unchanged.
 */
export async function init({ positionals }: Arguments): Promise<void> {
  const write = Object.entries(TARGETS).find(([name]) => name === positionals[0])?.[1]
  if (write === undefined) throw new UsageError('init: compose or systemd')
  for (const line of await write(process.cwd())) console.log(line)
}

async function writeCompose(folder: string): Promise<readonly string[]> {
  const compose = await readFile(join(PROJECT, 'docker-compose.yml'), 'utf8')
  const version = await readVersion()
  // The folder contains no sources, so images come from a registry.
  const text = compose
    .replaceAll(/^( +)build:.*\n(?:\1 +.*\n)*/gm, '')
    .replaceAll('{MILLRACE_VERSION:-dev}', `{MILLRACE_VERSION:-${version}}`)
  await writeNew(join(folder, 'docker-compose.yml'), text)
  await cp(join(PROJECT, 'deploy/monitoring'), join(folder, 'deploy/monitoring'), {
    recursive: true,
    force: false,
  })
  const script = join(PROJECT, 'deploy/compose-env.sh')
  const { status, stdout, stderr } = spawnSync('sh', [script, folder], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`.env cannot be written: ${stderr.trim()}`)
  return [
    'docker-compose.yml written',
    stdout.trim(),
    'Name the repository of the images in .env: MILLRACE_IMAGE=registry.example/team/millrace',
    'Start it with: docker compose up -d',
  ]
}

async function writeSystemd(folder: string): Promise<readonly string[]> {
  const closed = (await findClosedFolder(PROJECT)) ?? (await findClosedFolder(folder))
  if (closed !== undefined)
    throw new Error(
      `The units run as separate users, who cannot enter ${closed}. Call init in a folder that all users ` +
        'may enter; XDG_CACHE_HOME=/var/cache puts the project of the npm package into one.',
    )
  const files = {
    'millrace-api.service': unit('API tier', 'api', folder),
    'millrace-worker.service': unit('worker', 'worker', folder),
    [SETTINGS_FILE]: settings(),
  }
  for (const [name, text] of Object.entries(files)) await writeNew(join(folder, name), text)
  return [
    `${Object.keys(files).join(', ')} written`,
    `Name your services in ${SETTINGS_FILE}, copy the units to /etc/systemd/system, then:`,
    'systemctl daemon-reload && systemctl enable --now millrace-api millrace-worker',
  ]
}

function unit(noun: string, command: string, folder: string): string {
  const bootstrap = join(PROJECT, 'deploy/bootstrap.mjs')
  return `[Unit]
Description=Millrace ${noun}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=${quote(process.execPath)} ${quote(bootstrap)} launcher/cli.ts ${command}
EnvironmentFile=${join(folder, SETTINGS_FILE)}
Environment=${quote(`MILLRACE_HOME=${folder}`)}
DynamicUser=yes
StateDirectory=millrace-${command}
Environment=MILLRACE_DATA_DIR=/var/lib/millrace-${command}
ProtectSystem=strict
PrivateTmp=yes
NoNewPrivileges=yes
Restart=always
RestartSec=2
TimeoutStopSec=45

[Install]
WantedBy=multi-user.target
`
}

function settings(): string {
  const secrets = makeSecrets()
  return `# Settings of both services; every other one is in .env.example of the project.
REDIS_URL=redis://127.0.0.1:6379
DATABASE_URL=postgres://millrace@127.0.0.1:5432/millrace
AUTH_DB_DRIVER=postgres
AUTH_SITE_URL=http://localhost:8081
AUTH_API_EXTERNAL_URL=http://localhost:8081
AUTH_JWT_SECRET=${secrets.jwtSecret}
MILLRACE_URL_SIGNING_SECRET=${secrets.urlSigningSecret}
MILLRACE_ADMIN_TOKEN=${secrets.adminToken}
MILLRACE_ENCRYPTION_KEY=${secrets.encryptionKey}
MILLRACE_BOOTSTRAP_API_KEY=${secrets.apiKey}
# Object storage: both tiers must reach the same one.
S3_ENDPOINT=
S3_BUCKET=millrace
S3_ACCESS_KEY_ID=
S3_SECRET_ACCESS_KEY=
`
}

/** The first folder on the way to a path that only its owner or group may enter. */
async function findClosedFolder(path: string): Promise<string | undefined> {
  const closed = path === dirname(path) ? undefined : await findClosedFolder(dirname(path))
  if (closed !== undefined) return closed
  return ((await stat(path)).mode & 0o001) === 0 ? path : undefined
}

/** Writes a file that only its owner can read. Throws if the file exists. */
async function writeNew(path: string, text: string): Promise<void> {
  await writeFile(path, text, { mode: 0o600, flag: 'wx' }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') throw new Error(`${path} exists: move it away first`)
    throw error
  })
}

/** Quotes a value for a unit file (systemd.syntax). */
function quote(value: string): string {
  return /^[\w./:=@-]+$/.test(value) ? value : `"${value.replaceAll(/["\\]/g, '\\$&')}"`
}
