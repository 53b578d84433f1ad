import { cp, mkdir, readdir, readFile, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseEnv } from 'node:util'

import { parse } from 'yaml'

const ROOT = join(import.meta.dirname, '../..')

/** A service of `docker-compose.yml` with what its Dockerfile adds: all that a container runs by. */
export interface ComposedService {
  readonly env: Readonly<Record<string, string>>
  readonly command: readonly string[]
  readonly healthCheck: readonly string[]
  readonly user: string
  /** Writes the image's working directory, as the Dockerfile's COPY and RUN lines leave it. */
  writeImage(folder: string): Promise<void>
}

interface ComposeFile {
  readonly services: Readonly<Record<string, ComposeService>>
}

interface ComposeService {
  readonly environment?: Readonly<Record<string, string | number>>
  readonly build?: { readonly dockerfile: string }
  readonly image?: string
}

/** Reads one service; `secrets` is the text of the `.env` beside the compose file. */
export async function readComposedService(name: string, secrets: string): Promise<ComposedService> {
  const file = await readComposeFile(parseEnv(secrets))
  const service = file.services[name]
  if (service?.build === undefined) throw new Error(`${name} is built from no Dockerfile`)
  const stages = readStages(await readFile(join(ROOT, service.build.dockerfile), 'utf8'))
  const last = stages.at(-1) ?? []
  const cmd = argument(last, 'CMD')
  const healthCheck = argument(last, 'HEALTHCHECK')
  return {
    env: {
      ...Object.fromEntries(
        argument(last, 'ENV')
          .split(/\s+/)
          .map((pair) => pair.split('=')),
      ),
      ...Object.fromEntries(
        Object.entries(service.environment ?? {}).map(([key, value]) => [key, String(value)]),
      ),
    },
    command: JSON.parse(cmd) as string[],
    healthCheck: JSON.parse(healthCheck.slice(healthCheck.indexOf('['))) as string[],
    user: argument(last, 'USER'),
    writeImage: (folder) => writeImage(folder, last, stages.flat().join('\n')),
  }
}

/** The whole file with its variables replaced, as `docker compose config` does it. */
export async function readComposeFile(
  variables: Readonly<Record<string, string | undefined>>,
): Promise<ComposeFile> {
  const text = await readFile(join(ROOT, 'docker-compose.yml'), 'utf8')
  const interpolated = text.replaceAll(
    /\$\{(\w+)(?::([-?])([^}]*))?\}/g,
    (_whole, name: string, kind: string | undefined, rest: string | undefined) => {
      const value = variables[name] ?? ''
      if (value !== '') return value
      if (kind === '-') return rest ?? ''
      throw new Error(`${name}: ${rest ?? 'is not set'}`)
    },
  )
  return parse(interpolated, { merge: true }) as ComposeFile
}

/** The instructions of each stage, continuation lines joined. */
function readStages(text: string): string[][] {
  const stages: string[][] = []
  for (const line of text.replaceAll(/^#.*$/gm, '').replaceAll('\\\n', ' ').split('\n')) {
    if (line.startsWith('FROM ')) stages.push([])
    if (line.trim() !== '') stages.at(-1)?.push(line.trim())
  }
  return stages
}

function argument(stage: readonly string[], instruction: string): string {
  const line = stage.find((text) => text.startsWith(`${instruction} `))
  if (line === undefined) throw new Error(`there is no ${instruction}`)
  return line.slice(instruction.length + 1)
}

async function writeImage(folder: string, last: readonly string[], all: string): Promise<void> {
  const removed = all.includes('rm -rf node_modules/onnxruntime-node') ? ['onnxruntime-node'] : []
  await linkDependencies(join(folder, 'node_modules'), removed)
  for (const line of last.filter((text) => text.startsWith('COPY ') && !text.includes('--from='))) {
    const paths = line.split(/\s+/).slice(1)
    const target = paths.pop() ?? '.'
    for (const path of paths) {
      const place = target.endsWith('/') ? join(target, path) : target
      await cp(join(ROOT, path), join(folder, place), {
        recursive: true,
        filter: (source) => !source.includes('models/training'),
      })
    }
  }
}

/** What `npm ci --omit=dev --omit=optional` installs, as links; less what a RUN line removes. */
async function linkDependencies(folder: string, removed: readonly string[]): Promise<void> {
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean; devOptional?: boolean }>
  }
  const installed = new Set(await readdir(join(ROOT, 'node_modules')))
  for (const [path, entry] of Object.entries(lock.packages)) {
    const name = path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)$/)?.[1]
    if (name === undefined || removed.includes(name)) continue
    if (entry.dev === true || entry.optional === true || entry.devOptional === true) continue
    if (!installed.has(name.split('/')[0] ?? '')) continue
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await symlink(join(ROOT, path), join(folder, name))
  }
}
