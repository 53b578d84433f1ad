import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseEnv } from 'node:util'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Starts Postgres, Valkey and the S3 server of `docker-compose.yml` with ports of this machine, and
 * returns the settings that name them to the tests. They stop when this process exits.
 */
export function startContainers(): Readonly<Record<string, string>> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-containers-'))
  execFileSync('sh', [join(ROOT, 'deploy/compose-env.sh'), folder])
  const env = join(folder, '.env')
  const secrets = parseEnv(readFileSync(env, 'utf8'))
  const compose = (...args: string[]): string =>
    execFileSync(
      'docker',
      [
        'compose',
        '--project-name',
        `millrace-test-${process.pid}`,
        '--env-file',
        env,
        '--file',
        join(ROOT, 'docker-compose.yml'),
        '--file',
        join(ROOT, 'test/support/containers.yml'),
        ...args,
      ],
      { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] },
    ).trim()
  process.once('exit', () => {
    compose('down', '--volumes', '--timeout', '5')
    rmSync(folder, { recursive: true })
  })
  compose('run', '--rm', 'ready')
  const { POSTGRES_PASSWORD, S3_ACCESS_KEY_ID = '', S3_SECRET_ACCESS_KEY = '' } = secrets
  const keys = { key: S3_ACCESS_KEY_ID, secret: S3_SECRET_ACCESS_KEY }
  const query = new URLSearchParams({ bucket: 'millrace', ...keys })
  return {
    TEST_DATABASE_URL: `postgres://millrace:${POSTGRES_PASSWORD}@${compose('port', 'postgres', '5432')}/millrace`,
    TEST_REDIS_URL: `redis://${compose('port', 'redis', '6379')}`,
    TEST_S3_URL: `http://${compose('port', 'objects', '9000')}?${query}`,
  }
}
