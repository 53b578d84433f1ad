import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../../..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const product = JSON.parse(read('package.json')) as Record<
  'dependencies' | 'devDependencies' | 'optionalDependencies',
  Readonly<Record<string, string>>
>
const lock = JSON.parse(read('package-lock.json')) as {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean; readonly version: string }>>
}

const execute = (name: string, ...args: string[]) =>
  spawnSync(process.execPath, [join(ROOT, '.ci', name), ...args], {
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })

describe('direct dependencies', () => {
  it.each([
    ['Production', product.dependencies],
    ['Optional', product.optionalDependencies],
    ['Development', product.devDependencies],
  ])('are justified one by one in docs/dependencies.md: %s', (title, dependencies) => {
    const [, section = ''] = read('docs/dependencies.md').split(`\n## ${title}\n`)
    const [table = ''] = section.split('\n## ', 1)
    const rows = [...table.matchAll(/^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$/gm)]
    expect(rows.map(([, name]) => name)).toEqual(Object.keys(dependencies))
    for (const [, , why = '', instead = ''] of rows) {
      expect(Math.min(why.trim().length, instead.trim().length)).toBeGreaterThan(3)
    }
  })

  it('are pinned to exact versions', () => {
    const all = Object.values({ ...product.dependencies, ...product.devDependencies })
    const optional = Object.values(product.optionalDependencies)
    for (const version of [...all, ...optional]) {
      expect(version).toMatch(/^(npm:.+@)?\d+\.\d+\.\d+(-[\w.]+)?$/)
    }
  })

  it('come from the public registry, each with a hash', () => {
    for (const [folder, entry] of Object.entries(lock.packages)) {
      if (folder === '') continue
      expect(entry).toHaveProperty('integrity', expect.stringMatching(/^sha512-/))
      const { resolved = 'https://registry.npmjs.org/' } = entry as { resolved?: string }
      expect(resolved).toMatch(/^https:\/\/registry\.npmjs\.org\//)
    }
  })
})

describe('the licence check', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-licences-'))
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  /** The check of a root with one package of that licence. */
  async function check(name: string, license: string | undefined, dev = false) {
    const entry = { version: '1.0.0', integrity: 'sha512-AA==', dev, ...(license && { license }) }
    const packages = { '': {}, [`node_modules/${name}`]: entry }
    await writeFile(join(folder, 'package-lock.json'), JSON.stringify({ packages }))
    return execute('licences', folder)
  }

  it('accepts every production dependency of this product', () => {
    const { status, stdout } = execute('licences')
    expect(stdout).toMatch(/^licences: \d+ production packages, 0 faults\n$/)
    expect(status).toBe(0)
  })

  it.each([
    ['MIT', 0],
    ['(MIT OR GPL-3.0-only)', 0],
    ['Apache-2.0 AND (MIT OR BSD-3-Clause)', 0],
    ['GPL-2.0', 1],
    ['GPL-2.0-or-later', 1],
    ['LGPL-2.1-or-later', 1],
    ['AGPL-3.0-only', 1],
    ['MPL-2.0', 1],
    ['MIT AND GPL-3.0-only', 1],
    ['GPL-2.0-only WITH Classpath-exception-2.0', 1],
    ['MIT WITH something', 1],
    ['(MIT', 1],
    ['SEE LICENSE IN LICENSE.md', 1],
    ['UNLICENSED', 1],
    [undefined, 1],
  ])('judges %s', async (license, status) => {
    expect(await check('left-pad', license)).toMatchObject({ status })
  })

  it('applies an exception only to its packages', async () => {
    const license = 'LGPL-3.0-or-later'
    expect(await check('@img/sharp-libvips-linux-x64', license)).toMatchObject({ status: 0 })
    expect(await check('codec-parser', license)).toMatchObject({ status: 1 })
  })

  it('ignores packages that are only for development', async () => {
    expect(await check('lightningcss', 'MPL-2.0', true)).toMatchObject({ status: 0 })
  })

  it('finds a package that is installed under another licence than it is locked', async () => {
    const at = join(folder, 'node_modules/left-pad')
    await mkdir(at, { recursive: true })
    await writeFile(join(at, 'package.json'), JSON.stringify({ license: 'GPL-3.0' }))
    const { status, stdout } = await check('left-pad', 'MIT')
    expect([status, stdout]).toEqual([1, expect.stringContaining('installed as GPL-3.0')])
  })

  it('finds binaries whose contents are not listed', async () => {
    const at = join(folder, 'node_modules/left-pad/build')
    await mkdir(at, { recursive: true })
    await writeFile(join(at, '../package.json'), JSON.stringify({ license: 'MIT' }))
    await writeFile(join(at, 'pad.node'), '')
    const { status, stdout } = await check('left-pad', 'MIT')
    expect([status, stdout]).toEqual([1, expect.stringContaining('unlisted binaries')])
  })
})

describe('the bill of materials', () => {
  const bom = JSON.parse(execute('sbom').stdout) as {
    readonly bomFormat: string
    readonly specVersion: string
    readonly metadata: { readonly component: { readonly 'bom-ref': string } }
    readonly components: readonly {
      readonly 'bom-ref': string
      readonly name: string
      readonly version: string
      readonly purl: string
      readonly licenses: readonly object[]
      readonly hashes: readonly { readonly alg: string; readonly content: string }[]
    }[]
    readonly dependencies: readonly {
      readonly ref: string
      readonly dependsOn: readonly string[]
    }[]
  }

  it('names every production package once, with its licence and hash', () => {
    expect(bom).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.5' })
    const locked = Object.entries(lock.packages).filter(([at, { dev }]) => at !== '' && !dev)
    expect(bom.components).toHaveLength(locked.length)
    expect(new Set(bom.components.map((component) => component['bom-ref'])).size).toBe(
      locked.length,
    )
    for (const component of bom.components) {
      expect(component.licenses).toHaveLength(1)
      expect(component.purl).toBe(
        `pkg:npm/${component.name.replace('@', '%40')}@${component.version}`,
      )
      expect(component.hashes).toEqual([
        { alg: 'SHA-512', content: expect.stringMatching(/^[0-9a-f]{128}$/) },
      ])
    }
    const names = bom.components.map(({ name }) => name)
    const direct = { ...product.dependencies, ...product.optionalDependencies }
    expect(names).toEqual(expect.arrayContaining(Object.keys(direct)))
  })

  it('leads from the product to every package', () => {
    const edges = new Map(bom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]))
    const seen = new Set<string>()
    const open = [bom.metadata.component['bom-ref']]
    for (let ref = open.pop(); ref !== undefined; ref = open.pop()) {
      if (seen.has(ref)) continue
      seen.add(ref)
      open.push(...(edges.get(ref) ?? []))
    }
    const unreached = bom.components.filter((component) => !seen.has(component['bom-ref']))
    expect(unreached.map(({ name }) => name)).toEqual([])
  })
})
