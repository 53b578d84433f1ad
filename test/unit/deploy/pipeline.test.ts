import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const ROOT = join(import.meta.dirname, '../../..')
const WORKFLOWS = join(ROOT, '.github/workflows')

/** The fields of a job that these tests read. */
interface Job {
  readonly 'timeout-minutes'?: number
  readonly steps: readonly { readonly run?: string }[]
}

describe.each(readdirSync(WORKFLOWS))('the workflow %s', (name) => {
  const workflow = parse(readFileSync(join(WORKFLOWS, name), 'utf8'))

  it('grants its token named permissions only', () => {
    expect(workflow.permissions).toEqual(expect.any(Object))
  })

  it('bounds the time of every job', () => {
    for (const [job, { 'timeout-minutes': minutes }] of Object.entries<Job>(workflow.jobs))
      expect(minutes, job).toBeLessThanOrEqual(60)
  })

  it('installs Redis, which runners lack, in every job that runs all tests', () => {
    for (const [job, { steps }] of Object.entries<Job>(workflow.jobs)) {
      const scripts = steps.flatMap(({ run }) => run ?? [])
      const tests = scripts.findIndex((script) => /^(npm test|bash \.ci\/run)$/.test(script))
      if (tests < 0) continue
      expect(scripts.slice(0, tests).join('\n'), job).toMatch(/install.* redis-server\b/)
    }
  })

  it('runs scripts and files that exist', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const text = readFileSync(join(WORKFLOWS, name), 'utf8')
    for (const [, script] of text.matchAll(/npm run (\w+)/g))
      expect(scripts).toHaveProperty([String(script)])
    const files = [...text.matchAll(/(?:\.ci|deploy)\/[\w./-]+/g)].map(([file]) => file)
    expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([])
  })
})

it('the workflow finds the answer in the stream of the first request', () => {
  const { jobs } = parse(readFileSync(join(WORKFLOWS, 'tests.yml'), 'utf8'))
  const script = jobs.package.steps.at(-1).run
  const filter = /^sh -c "\$\(grep '\^curl' log\)" \| (.*)$/m.exec(script)?.[1] ?? ''
  const chunk = (content: string) =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`
  const search = (...tokens: string[]) =>
    spawnSync('bash', ['-eo', 'pipefail', '-c', filter], { input: tokens.map(chunk).join('') })
  expect(search('The capital', ' is', ' P', 'aris', '.').status).toBe(0)
  expect(search('The capital', ' is', ' Rome', '.').status).toBe(1)
})

describe('the release', () => {
  const { jobs } = parse(readFileSync(join(WORKFLOWS, 'release.yml'), 'utf8'))
  const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

  it('gives package and chart the same version', () => {
    const { version } = JSON.parse(read('package.json'))
    expect(parse(read('deploy/helm/Chart.yaml'))).toMatchObject({ version, appVersion: version })
    expect(read('deploy/helm/Chart.yaml')).toMatch(new RegExp(`^appVersion: ${version}$`, 'm'))
  })

  it('names the images that the chart and a written compose file pull', () => {
    const metadata = jobs.images.steps.find(({ id }: { id?: string }) => id === 'image')
    // A tag v1.2.3 makes images 1.2.3: the version of the chart and of `millrace init compose`.
    expect(metadata.with.tags).toBe('type=semver,pattern={{version}}')
    // The line that the workflow replaces by the repository of the release.
    expect(read('deploy/helm/values.yaml')).toMatch(/^ {2}repository: millrace$/m)
  })

  it('builds the images of docker-compose.yml with the same arguments', () => {
    const { services } = parse(read('docker-compose.yml'), { merge: true })
    for (const { name, target, arguments: given = '' } of jobs.images.strategy.matrix.include) {
      const pairs = given.split('\n').filter(Boolean)
      const args = Object.fromEntries(pairs.map((pair: string) => pair.split('=')))
      expect({ target, args }).toEqual({ args: {}, ...pick(services[name].build) })
    }
  })

  it('builds every image on a runner of its architecture, and names all of them in one manifest', () => {
    const built = new Map<string, string[]>()
    for (const { name, architecture, runner } of jobs.images.strategy.matrix.include) {
      expect(runner).toBe(architecture === 'arm64' ? 'ubuntu-24.04-arm' : 'ubuntu-24.04')
      built.set(name, [...(built.get(name) ?? []), architecture])
    }
    const named = jobs.manifests.strategy.matrix.include.map(
      ({ name, architectures }: { name: string; architectures: string }) =>
        [name, architectures.split(' ')] as const,
    )
    expect(new Map(named)).toEqual(built)
  })

  it('removes packages from an image in the same step, because npm restores those of an earlier one', () => {
    const stages = read('deploy/docker/Dockerfile')
      .split(/^FROM /m)
      .slice(1)
    const removing = stages.filter((stage) => /^RUN npm uninstall/m.test(stage))
    const names = removing.map((stage) => stage.split(/\s/)[2])
    expect(names).toEqual(['api-dependencies', 'worker-dependencies'])
    for (const stage of removing) {
      expect(names).not.toContain(stage.split(/\s/)[0])
      expect(stage.match(/^RUN npm uninstall/gm)).toHaveLength(1)
    }
  })

  it('starts every image from one that its digest names', () => {
    const stages = [...read('deploy/docker/Dockerfile').matchAll(/^FROM (\S+) AS (\S+)$/gm)]
    const names = new Set(stages.map(([, , name]) => name))
    const external = stages.flatMap(([, from = '']) =>
      names.has(from) || from === `runtime-\${RUNTIME}` ? [] : [from],
    )
    expect(external.length).toBeGreaterThan(2)
    for (const image of external) expect(image).toMatch(/:[\w.-]+@sha256:[0-9a-f]{64}$/)
  })
})

function pick({ target, args }: { target: string; args?: object }): object {
  return args === undefined ? { target } : { target, args }
}

it('release notes group Conventional Commits and mark breaking ones', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-notes-'))
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.test', ...args], {
      cwd: folder,
    })
  try {
    git('init', '-q')
    const subjects = [
      'feat: first',
      'fix(auth): second',
      'docs: third',
      'feat(api)!: fourth',
      'odd',
    ]
    for (const subject of subjects) git('commit', '-q', '--allow-empty', '-m', subject)
    const notes = execFileSync(process.execPath, [join(ROOT, '.ci/release-notes')], {
      cwd: folder,
      encoding: 'utf8',
    })
    expect(notes).toBe(
      '## Breaking\n\n- **api**: fourth\n\n## Added\n\n- first\n\n## Fixed\n\n- **auth**: second\n\n',
    )
  } finally {
    rmSync(folder, { recursive: true })
  }
})
