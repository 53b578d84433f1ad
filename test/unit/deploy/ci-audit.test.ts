import { spawnSync } from 'node:child_process'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'

import { afterEach, beforeEach, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../../..')

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-audit-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const weakness = (severity: string) => ({ name: 'left-pad', severity, range: '<1.3.0' })
const answer = (vulnerabilities: Record<string, object>, counts: Record<string, number>) =>
  JSON.stringify({ vulnerabilities, metadata: { vulnerabilities: counts } })
const NONE = { info: 0, low: 0, moderate: 0, high: 0, critical: 0, total: 0 }

it.each([
  ['nothing', answer({}, NONE), 0, ['0 packages']],
  [
    'a moderate weakness',
    answer({ 'left-pad': weakness('moderate') }, { ...NONE, moderate: 1 }),
    0,
    ['moderate left-pad <1.3.0', '1 packages with known weaknesses, 0 high or critical'],
  ],
  [
    'a high one',
    answer({ 'left-pad': weakness('high') }, { ...NONE, high: 1 }),
    1,
    ['high left-pad <1.3.0', '1 high or critical'],
  ],
  [
    'a critical one',
    answer({ 'left-pad': weakness('critical') }, { ...NONE, critical: 1 }),
    1,
    ['critical left-pad <1.3.0', '1 high or critical'],
  ],
  [
    'that there are no audits here',
    '{"message":"405 Method Not Allowed\\nand more","statusCode":405}',
    0,
    ['not done, the registry cannot be asked (405 Method Not Allowed)'],
  ],
  ['nothing that can be read', '<html>', 0, ['not done']],
])('an audit that finds %s', async (_title, report, status, says) => {
  const npm = join(folder, 'npm')
  // The registry is the outside world; `npm audit` ends with 1 in all of these cases.
  await writeFile(npm, `#!/bin/sh\ncat <<'END'\n${report}\nEND\nexit 1\n`)
  await chmod(npm, 0o755)
  const path = [folder, dirname(process.execPath), process.env.PATH].join(delimiter)
  const ran = spawnSync(process.execPath, [join(ROOT, '.ci/audit')], {
    encoding: 'utf8',
    env: { ...process.env, PATH: path },
  })
  expect(ran.status).toBe(status)
  for (const text of says) expect(ran.stdout).toContain(text)
  expect(ran.stderr).toBe('')
})

it('an audit without npm is reported and fails nothing', () => {
  const ran = spawnSync(process.execPath, [join(ROOT, '.ci/audit')], {
    encoding: 'utf8',
    env: { ...process.env, PATH: folder },
  })
  expect([ran.status, ran.stdout]).toEqual([
    0,
    'audit: not done, the registry cannot be asked (ENOENT)\n',
  ])
})
