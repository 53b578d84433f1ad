import { execFile } from 'node:child_process'
import { cp, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { parseEnv, promisify } from 'node:util'

import { parse } from 'yaml'

const ROOT = join(import.meta.dirname, '../..')

/**
 * A service of `docker-compose.yml` with what its Dockerfile adds: all that a container runs by.
 */
export interface ComposedService {
  readonly env: Readonly<Record<string, string>>
  readonly command: readonly string[]
  readonly healthCheck: readonly string[]
  readonly user: string
  /** Writes the image's working directory, as the Dockerfile's COPY and RUN lines leave it. */
  writeImage(folder: string): Promise<void>
}

/** The compose file with its variables replaced. */
export interface ComposeFile {
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
          .map((pair) => /^([^=]+)=(.*)$/.exec(pair)?.slice(1) ?? []),
      ),
      ...Object.fromEntries(
        Object.entries(service.environment ?? {}).map(([key, value]) => [key, String(value)]),
      ),
    },
    command: JSON.parse(cmd) as string[],
    healthCheck: JSON.parse(healthCheck.slice(healthCheck.indexOf('['))) as string[],
    user: argument(last, 'USER'),
    writeImage: (folder) => writeImage(folder, stages),
  }
}

/** The whole file with its variables replaced, as `docker compose config` does it. */
export async function readComposeFile(
  variables: Readonly<Record<string, string | undefined>>,
): Promise<ComposeFile> {
  const text = await readFile(join(ROOT, 'docker-compose.yml'), 'utf8')
  const replaceInnermost = (outer: string) =>
    outer.replaceAll(
      /\$\{(\w+)(?::([-?])([^{}]*))?\}/g,
      (_whole, name: string, kind: string | undefined, rest: string | undefined) => {
        const value = variables[name] ?? ''
        if (value !== '') return value
        if (kind === '-') return rest ?? ''
        throw new Error(`${name}: ${rest ?? 'is not set'}`)
      },
    )
  // A default may hold a variable of its own.
  return parse(replaceInnermost(replaceInnermost(text)), { merge: true }) as ComposeFile
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

async function writeImage(folder: string, stages: readonly string[][]): Promise<void> {
  const last = stages.at(-1) ?? []
  const install = stages.flat().find((line) => line.startsWith('RUN npm ci ')) ?? ''
  await installDependencies(folder, install)
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

/**
 * What an instruction `RUN npm ci … && rm …` leaves: files of their own (hard links where the
 * system allows), because from a symbolic link a package would find in the tree what the image
 * lacks.
 */
async function installDependencies(folder: string, run: string): Promise<void> {
  const [install = '', ...cleaning] = run.slice('RUN '.length).split('&&')
  const source = join(ROOT, 'node_modules')
  await shell(folder, `cp -al '${source}' . 2>/dev/null || cp -a '${source}' .`)
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean }>
  }
  const omitted = Object.entries(lock.packages).filter(
    ([, { dev, optional }]) =>
      (dev === true && install.includes('--omit=dev')) ||
      (optional === true && install.includes('--omit=optional')),
  )
  for (const [path] of omitted) await rm(join(folder, path), { recursive: true, force: true })
  for (const command of cleaning) await shell(folder, command)
}

const shell = (cwd: string, command: string) => promisify(execFile)('sh', ['-c', command], { cwd })
