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
  readonly build?: { readonly dockerfile: string; readonly target: string }
  readonly image?: string
}

/** Reads one service; `secrets` is the text of the `.env` beside the compose file. */
export async function readComposedService(name: string, secrets: string): Promise<ComposedService> {
  const file = await readComposeFile(parseEnv(secrets))
  const service = file.services[name]
  if (service?.build === undefined) throw new Error(`${name} is built from no Dockerfile`)
  const stages = readStages(await readFile(join(ROOT, service.build.dockerfile), 'utf8'))
  const lines = stages.linesOf(service.build.target)
  const healthCheck = argument(lines, 'HEALTHCHECK')
  const pairs = lines
    .filter((line) => line.startsWith('ENV '))
    .flatMap((line) => line.split(/\s+/).slice(1))
  return {
    env: {
      ...Object.fromEntries(pairs.map((pair) => /^([^=]+)=(.*)$/.exec(pair)?.slice(1) ?? [])),
      ...Object.fromEntries(
        Object.entries(service.environment ?? {}).map(([key, value]) => [key, String(value)]),
      ),
    },
    command: JSON.parse(argument(lines, 'CMD')) as string[],
    healthCheck: JSON.parse(healthCheck.slice(healthCheck.indexOf('['))) as string[],
    user: argument(lines, 'USER'),
    writeImage: (folder) => writeImage(folder, { lines, stages }),
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

/** The stages of a Dockerfile by name. */
interface Stages {
  /** The instructions of a stage, after those of the stages that it starts from. */
  linesOf(name: string): readonly string[]
}

function readStages(text: string): Stages {
  const stages = new Map<string, { readonly parent: string; readonly lines: string[] }>()
  let lines: string[] = []
  for (const line of text.replaceAll(/^#.*$/gm, '').replaceAll('\\\n', ' ').split('\n')) {
    const [, parent, name] = /^FROM (\S+) AS (\S+)$/.exec(line) ?? []
    if (parent !== undefined && name !== undefined) {
      lines = []
      stages.set(name, { parent, lines })
    } else if (line.trim() !== '') lines.push(line.trim())
  }
  const linesOf = (name: string): readonly string[] => {
    const stage = stages.get(name)
    return stage === undefined ? [] : [...linesOf(stage.parent), ...stage.lines]
  }
  return { linesOf }
}

function argument(lines: readonly string[], instruction: string): string {
  const line = lines.find((text) => text.startsWith(`${instruction} `))
  if (line === undefined) throw new Error(`there is no ${instruction}`)
  return line.slice(instruction.length + 1)
}

async function writeImage(
  folder: string,
  { lines, stages }: { readonly lines: readonly string[]; readonly stages: Stages },
): Promise<void> {
  const copies = lines.filter((line) => line.startsWith('COPY '))
  for (const line of copies.filter((text) => !text.includes('--from='))) {
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
  const packages = copies.map((line) => /--from=(\S+) \/app\/node_modules /.exec(line)?.[1])
  await installDependencies(folder, stages.linesOf(packages.find(Boolean) ?? ''))
}

/**
 * The packages that the instructions `RUN npm ci … && …` install: separate files (hard links where
 * the system allows), because a package behind a symbolic link would find packages of this tree
 * that the image lacks.
 */
async function installDependencies(folder: string, lines: readonly string[]): Promise<void> {
  const source = join(ROOT, 'node_modules')
  await shell(folder, `cp -al '${source}' . 2>/dev/null || cp -a '${source}' .`)
  await cp(join(ROOT, 'package-lock.json'), join(folder, 'package-lock.json'))
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean }>
  }
  const developed = Object.entries(lock.packages).filter(([, { dev }]) => dev === true)
  for (const [path] of developed) await rm(join(folder, path), { recursive: true, force: true })
  const runs = lines.filter((line) => line.startsWith('RUN ')).join(' && ')
  for (const command of runs.replaceAll('RUN ', '').split('&&')) {
    if (!command.trim().startsWith('npm ci ')) await shell(folder, command)
  }
}

/** Without a registry, and without the download of an execution provider. */
const IMAGE_ENV = { npm_config_offline: 'true', ONNXRUNTIME_NODE_INSTALL: 'skip' }

const shell = (cwd: string, command: string) =>
  promisify(execFile)('sh', ['-c', command], { cwd, env: { ...process.env, ...IMAGE_ENV } })
