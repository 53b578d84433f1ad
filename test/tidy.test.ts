import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'

import { describe, expect, it } from 'vitest'

import { describeConfig, renderEnvExample } from '#shared/config/config.ts'
import { rejectedSubjects, rejectedWords } from '#test/support/vocabulary.ts'

const ROOT = join(import.meta.dirname, '..')
const PRODUCT = ['api', 'workers', 'shared', 'launcher']
const FILE_LINES_MAX = 400
/** A file below this length hardly holds an idea of its own. */
const SMALL_FILE_LINES = 25
const SMALL_FILES_MAX = 15
const FUNCTION_LINES_MAX = 70
const COMMENT_COLUMNS_MAX = 100

interface Source {
  readonly path: string
  readonly text: string
  /** Imported files of ours (paths from the root) and packages (bare names). */
  readonly imports: readonly string[]
}

/** Which imports a folder may not have; the first row that matches a file decides. */
const LAYERS: readonly { readonly files: RegExp; readonly never: RegExp; readonly why: string }[] =
  [
    { files: /^api\//, never: /^(workers|launcher)\//, why: 'the tiers meet only in Redis' },
    { files: /^workers\//, never: /^(api|launcher)\//, why: 'the tiers meet only in Redis' },
    { files: /^shared\//, never: /^(api|workers|launcher)\//, why: 'shared imports neither tier' },
    {
      files: /^api\/auth\/[^/]+\//,
      never: /^(fastify|@fastify\/.*)$/,
      why: 'only the top of the user server knows HTTP',
    },
    {
      files: /^api\/auth\/external\/providers\//,
      never:
        /^api\/auth\/(?!external\/|errors|secrets|ports)|^api\/auth\/external\/(authorize|callback|external-account|link-to-user|exchange-id-token)\.ts$/,
      why: 'providers know no accounts',
    },
    {
      files: /^api\/files\/file-store\.ts/,
      never: /^(fastify|@fastify\/.*)$/,
      why: 'stored files know no HTTP',
    },
    {
      files: /^api\/inference\//,
      never: /^api\/(auth|files|activities|console)\//,
      why: 'one surface imports no other',
    },
    {
      files: /^api\/auth\//,
      never: /^api\/(inference|files|activities|console)\//,
      why: 'one surface imports no other',
    },
    {
      files: /^workers\/processors\//,
      never: /^(bullmq|ioredis)$/,
      why: 'processors know no queue',
    },
    {
      files:
        /^workers\/(engine|graph|sampling|text|tensor|audio|image|vision|embedding|adapters|convert|runtime|training\/(autodiff|lowering))\//,
      never:
        /^(bullmq|ioredis|@aws-sdk\/.*|shared\/(queue|storage|db|config)\/.*|workers\/processors\/.*)$/,
      why: 'engines know no infrastructure',
    },
    {
      files: /^workers\/tensor\//,
      never: /^workers\/(?!tensor)/,
      why: 'tensor is the lowest room',
    },
    {
      files: /^workers\/(?!runtime\/)/,
      never: /^(koffi|onnxruntime-node)$/,
      why: 'only the runtime knows the native library',
    },
    {
      files: /^workers\//,
      never: /^(pg|drizzle-orm.*|shared\/db\/.*)$/,
      why: 'workers never touch Postgres',
    },
    {
      files: /^shared\/(contracts\/.*|errors|catalogue|clock|ids|duration|storable)(\.ts)?$/,
      never: /^(?!shared\/(contracts\/|errors|catalogue|clock|ids|duration|storable)|node:)/,
      why: 'contracts import no package',
    },
    {
      files: /^shared\/config\//,
      never: /^(pg|ioredis|bullmq|@aws-sdk\/.*|shared\/(queue|db|storage|telemetry)\/.*)$/,
      why: 'config knows no driver',
    },
    {
      files: /^shared\/db\//,
      never: /^shared\/(queue|storage|telemetry)\//,
      why: 'adapters know not each other',
    },
    {
      files: /^shared\/queue\//,
      never: /^shared\/(db|storage|telemetry)\//,
      why: 'adapters know not each other',
    },
    {
      files: /^shared\/storage\//,
      never: /^shared\/(db|queue|telemetry)\//,
      why: 'adapters know not each other',
    },
  ]

describe('the tree', () => {
  const sources = PRODUCT.flatMap((folder) => readSources(folder))

  it.each(LAYERS)('holds that $why ($files)', ({ files, never }) => {
    const breaches = sources
      .filter((source) => files.test(source.path))
      .flatMap((source) =>
        source.imports
          .filter((name) => never.test(name) && name !== source.path)
          .map((name) => `${source.path} imports ${name}`),
      )
    expect(breaches).toEqual([])
  })

  it('imports from other folders by their alias', () => {
    const climbing = sources.filter(({ text }) => /(from |import\(?)'\.\.\//.test(text))
    expect(climbing.map(({ path }) => path)).toEqual([])
  })

  it(`has no file over ${FILE_LINES_MAX} lines`, () => {
    const long = [...sources, ...readSources('test'), ...readSources('bench')]
      .map(({ path, text }) => ({ path, lines: text.split('\n').length - 1 }))
      .filter(({ lines }) => lines > FILE_LINES_MAX)
    expect(long).toEqual([])
  })

  it(`has no comment beyond ${COMMENT_COLUMNS_MAX} columns`, () => {
    const long = [...sources, ...readSources('test'), ...readSources('bench')].flatMap(
      ({ path, text }) =>
        text.split('\n').flatMap((line, index) => {
          // Tables, drawings, type annotations and URLs stay on one line.
          const isProse = /^\s*(\/\/|\*|\/\*\*) [^\s|@]/.test(line) && !line.includes('://')
          return isProse && line.length > COMMENT_COLUMNS_MAX ? [`${path}:${index + 1}`] : []
        }),
    )
    expect(long).toEqual([])
  })

  it('derives the types of requests from their schemas', () => {
    const builders = [
      'shared/schemas.ts',
      'api/inference/field-schemas.ts',
      'api/inference/variant-schema.ts',
    ]
    const stated = sources.filter(
      ({ path, text }) => text.includes('Type.Unsafe(') && !builders.includes(path),
    )
    expect(stated.map(({ path }) => path)).toEqual([])
    expect(sources.filter(({ text }) => text.includes('Type.Unsafe<'))).toEqual([])
  })

  it('registers hooks of tests in test files: a worker reads other modules once', () => {
    const found = readSources('test')
      .filter(({ path }) => !path.endsWith('.test.ts'))
      // The set-up of every file runs again with it.
      .filter(({ path }) => path !== 'test/support/closed-connections.ts')
      .filter(({ text }) => /^(before|after)(All|Each)\(/m.test(text))
    expect(found.map(({ path }) => path)).toEqual([])
  })

  it(`has at most ${SMALL_FILES_MAX} files below ${SMALL_FILE_LINES} lines`, () => {
    const small = sources
      .filter(({ text }) => text.split('\n').length - 1 < SMALL_FILE_LINES)
      .map(({ path }) => path)
    expect(small.slice(SMALL_FILES_MAX)).toEqual([])
  })

  it(`has no function over ${FUNCTION_LINES_MAX} lines`, () => {
    const long = sources.flatMap((source) => longFunctions(source))
    expect(long).toEqual([])
  })

  it('has no import cycles, type-only imports included', () => {
    expect(importCycles(sources)).toEqual([])
  })

  it('exports nothing that only its own file uses', () => {
    const scripts = readSources('api', '.js')
    const all = [...sources, ...scripts, ...readSources('test'), ...readSources('bench')]
    const own = sources.filter(({ path }) => !path.endsWith('.d.ts'))
    const unused = own.flatMap(({ path, text }) =>
      [...text.matchAll(EXPORT)].flatMap(([, name = '']) => {
        const word = new RegExp(`\\b${name.replace('$', '\\$')}\\b`)
        return all.some((other) => other.path !== path && word.test(other.text))
          ? []
          : [`${path} ${name}`]
      }),
    )
    expect(unused).toEqual([])
  })

  it("uses the field's terms in names, comments, messages, test names and documents", () => {
    const files = ['.ts', '.js', '.mjs', '.md'].flatMap((extension) => [
      ...[...PRODUCT, 'test', 'bench', 'deploy', 'docs'].flatMap((folder) =>
        readSources(folder, extension),
      ),
    ])
    const pages = readdirSync(ROOT).filter((name) => name.endsWith('.md'))
    const all = [
      ...files,
      ...pages.map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') })),
    ]
    expect(all.flatMap(({ path, text }) => rejectedWords(path, text))).toEqual([])
  })

  it('has Conventional Commits subjects on the branch, in the same terms', () => {
    expect(rejectedSubjects(subjectsOfBranch())).toEqual([])
    const rows = ['Add x', 'feat: Add x', 'fix(auth): reject x.', `fix: ${'x'.repeat(72)}`]
    expect(rejectedSubjects([...rows, 'feat(auth): add x', 'fix: forget x'])).toEqual([
      ...rows,
      expect.stringContaining('forget'),
    ])
  })

  it('reads the environment only in the configuration and the launcher', () => {
    // ONNX Runtime's C library reads its telemetry switch from the environment only.
    const exceptions = /^(shared\/config\/|launcher\/|workers\/runtime\/native\.ts$)/
    expect(pathsWith(sources, /\bprocess\.env\b/, exceptions)).toEqual([])
  })

  it('prints only through the logger, except in the command line', () => {
    expect(pathsWith(sources, /\bconsole\.\w+\(/, /^launcher\//)).toEqual([])
  })

  it('writes SQL only in stores and in the database adapter', () => {
    const rawSql = /\bsql(<[^`]*>)?`|\bsql\.raw\(|\.(query|execute)(<[^(]*>)?\(\s*[`'"]/
    // The reports of the console join and group tables of several stores.
    const exceptions = /-store\.ts$|^shared\/db\/|^api\/console\//
    expect(pathsWith(sources, rawSql, exceptions)).toEqual([])
  })

  it('imports only types of TypeBox, and loads images with their first use in the API', () => {
    const library = /^import (?!type\b)[^'"]*from '(typebox[^']*|sharp)'/m
    // They took 25 MiB of an idle process, unnoticed.
    expect(pathsWith(sources, library, /^workers\//)).toEqual([])
  })

  it('has no default exports', () => {
    expect(pathsWith(sources, /^export default /m, /^$/)).toEqual([])
  })

  it('numbers its migrations in order without a repeat', () => {
    const numbers = readdirSync(join(ROOT, 'migrations')).map((name) => Number(name.slice(0, 4)))
    expect(numbers.every(Number.isInteger)).toBe(true)
    expect(new Set(numbers).size).toBe(numbers.length)
  })
})

describe('.env.example', () => {
  it('lists every setting with its default and nothing else', () => {
    expect(readFileSync(join(ROOT, '.env.example'), 'utf8')).toBe(renderEnvExample())
  })

  it('names no setting twice', () => {
    const names = describeConfig({}).map((line) => line.split('=')[0])
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([])
  })
})

/** Commits that the main branch lacks; none in a package or a shallow clone. */
function subjectsOfBranch(): string[] {
  const git = (...words: readonly string[]): string =>
    spawnSync('git', words, { cwd: ROOT, encoding: 'utf8' }).stdout?.trim() ?? ''
  const bases = ['origin/main', 'main'].map((name) => git('rev-parse', '--verify', '-q', name))
  const base = bases.find((commit) => commit !== '')
  if (base === undefined) return []
  const log = git('log', '--no-merges', '--format=%s', `${base}..HEAD`)
  return log === '' ? [] : log.split('\n')
}

const EXPORT =
  /^export (?:abstract )?(?:async )?(?:const|let|function\*?|class|interface|type|enum) (\w+)/gm

/** One path of imports for each file that imports itself by way of others. */
function importCycles(sources: readonly Source[]): string[] {
  const imports = new Map(sources.map((source) => [source.path, source.imports]))
  const done = new Set<string>()
  const cycles: string[] = []
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) cycles.push([...trail.slice(trail.indexOf(path)), path].join(' → '))
    if (done.has(path) || trail.includes(path)) return
    for (const next of imports.get(path) ?? []) if (imports.has(next)) visit(next, [...trail, path])
    done.add(path)
  }
  for (const path of imports.keys()) visit(path, [])
  return cycles
}

function readSources(folder: string, extension = '.ts'): Source[] {
  const entries = readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
  return (
    entries
      .filter((entry) => entry.isFile() && entry.name.endsWith(extension))
      .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
      // Packages and copied pages of the site.
      .filter((path) => !/^docs\/(node_modules|\.vitepress\/source)\//.test(path))
      .map((path) => {
        const text = readFileSync(join(ROOT, path), 'utf8')
        return { path, text, imports: importsOf(path, text) }
      })
  )
}

function importsOf(path: string, text: string): string[] {
  const found = text.matchAll(
    /^(?:import|export)\b[^'"]*?from '([^']+)'|\bimport\('([^']+)'\)|^import '([^']+)'/gm,
  )
  return [...found].map((match) => {
    const name = (match[1] ?? match[2] ?? match[3]) as string
    if (name.startsWith('#')) return name.slice(1)
    return name.startsWith('.') ? normalize(join(dirname(path), name)) : name
  })
}

/** Functions whose text, found by indentation (the formatter guarantees it), is too long. */
function longFunctions({ path, text }: Source): string[] {
  const lines = text.split('\n')
  const opening =
    /^(\s*)(?:export )?(?:async )?(?:function\*? (\w+)|(?:static |async |\*|#)*(\w+)\([^)]*\)[^;=]*\{$)/
  return lines.flatMap((line, start) => {
    const match = opening.exec(line)
    if (match === null || /^\s*(if|for|while|switch|return|await)\b/.test(line)) return []
    const end = lines.findIndex((other, index) => index > start && other.startsWith(`${match[1]}}`))
    const length = end - start + 1
    return length > FUNCTION_LINES_MAX
      ? [`${path}:${start + 1} ${match[2] ?? match[3]} (${length})`]
      : []
  })
}

function pathsWith(sources: readonly Source[], pattern: RegExp, except: RegExp): string[] {
  return sources
    .filter(({ path, text }) => pattern.test(text) && !except.test(path))
    .map(({ path }) => path)
}
