import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const ROOT = join(import.meta.dirname, '../../..')
const WORKFLOWS = join(ROOT, '.github/workflows')

describe.each(readdirSync(WORKFLOWS))('the workflow %s', (name) => {
  const workflow = parse(readFileSync(join(WORKFLOWS, name), 'utf8'))

  it('grants its token named permissions only', () => {
    expect(workflow.permissions).toEqual(expect.any(Object))
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
