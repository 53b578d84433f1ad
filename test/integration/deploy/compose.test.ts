import { execFile, spawnSync } from 'node:child_process'
import { cp, mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

import OpenAI, { toFile } from 'openai'
import sharp from 'sharp'
import { describe, expect } from 'vitest'

import { findFreePort, startChild, waitUntil } from '#launcher/embedded/child.ts'
import {
  type ComposedService,
  type ComposeFile,
  readComposedService,
  readComposeFile,
} from '#test/support/compose.ts'
import { startS3 } from '#test/support/s3.ts'
import { it } from '#test/support/services.ts'

const ROOT = join(import.meta.dirname, '../../..')
const START_TIMEOUT_MS = 60_000

describe('docker-compose.yml', () => {
  it('starts no service without the secrets, and says how to create them', async () => {
    await expect(readComposeFile({})).rejects.toThrow('run deploy/compose-env.sh first')
  })

  it('gets secrets that are random, long and readable only by their owner', async ({ folder }) => {
    const [first, second] = [join(folder, 'a'), join(folder, 'b')]
    const [one, other] = [await makeSecrets(first), await makeSecrets(second)]
    const secret = (line: string) => !/_CPUS=/.test(line)
    const values = (text: string) =>
      text
        .split('\n')
        .filter(secret)
        .flatMap((line) => line.split('=')[1] ?? [])
    expect(values(one).every((value) => value.length >= 20)).toBe(true)
    expect(values(one).filter((value) => values(other).includes(value))).toEqual([])
    expect((await stat(join(first, '.env'))).mode & 0o777).toBe(0o600)
    expect(await makeSecrets(first)).toBe(one)
  })

  it('bounds no container by more processors than the machine of Docker has', async ({
    folder,
  }) => {
    const bin = join(folder, 'bin')
    await mkdir(bin)
    await writeFile(join(bin, 'docker'), '#!/bin/sh\necho 1\n', { mode: 0o755 })
    const secrets = await makeSecrets(folder, { PATH: `${bin}:${process.env.PATH}` })
    const { services } = await readComposeFile(toVariables(secrets))
    for (const [name, service] of Object.entries(services))
      expect(service, name).toMatchObject({ cpus: 1 })
  })

  it('is read by docker compose as these tests read it, if its client is installed', async ({
    folder,
    skip,
  }) => {
    const client = spawnSync('docker', ['compose', 'version'])
    if (client.status !== 0) return skip('no docker compose on this machine')
    const secrets = await makeSecrets(folder)
    const place = ['--env-file', join(folder, '.env'), '--project-directory', ROOT]
    const { stdout } = await promisify(execFile)(
      'docker',
      ['compose', ...place, '--profile', '*', 'config', '--format', 'json'],
      { env: { PATH: process.env.PATH, HOME: process.env.HOME } },
    )
    const environments = ({ services }: ComposeFile) =>
      mapValues(services, ({ environment = {} }) => mapValues(environment, String))
    const ours = await readComposeFile(toVariables(secrets))
    expect(environments(JSON.parse(stdout) as ComposeFile)).toEqual(environments(ours))
  })

  it('pins every image, and runs no process of ours as root or on a writable system', async ({
    folder,
  }) => {
    const secrets = await makeSecrets(folder)
    const { services } = await readComposeFile(toVariables(secrets))
    for (const [name, service] of Object.entries(services)) {
      if (service.build === undefined) {
        expect(service.image, name).toMatch(/:v?\d+[\w.-]*$/)
        continue
      }
      expect(service, name).toMatchObject({ read_only: true, cap_drop: ['ALL'] })
      expect((await readComposedService(name, secrets)).user, name).toMatch(/^[1-9]\d*:[1-9]\d*$/)
    }
  })

  it('waits for the server of Postgres, not for the one that makes the database', async ({
    folder,
  }) => {
    const { services } = await readComposeFile(toVariables(await makeSecrets(folder)))
    expect(services.postgres).toMatchObject({
      healthcheck: { test: expect.arrayContaining(['pg_isready', '-h', '127.0.0.1']) },
    })
  })

  it('publishes addresses with the port at which it is reached', async ({ folder }) => {
    const variables = { ...toVariables(await makeSecrets(folder)), PORT: '9000' }
    const { services } = await readComposeFile(variables)
    expect(services.api).toMatchObject({
      ports: ['9000:8081'],
      environment: {
        AUTH_SITE_URL: 'http://localhost:9000',
        AUTH_API_EXTERNAL_URL: 'http://localhost:9000',
        AUTH_API_PORT: 8081,
      },
    })
  })

  it('describes an API tier and a worker that need only the content of their images', {
    timeout: 180_000,
  }, async ({ folder, databaseUrl, redisUrl, keyPrefix, mail, onTestFinished }) => {
    const secrets = await makeSecrets(folder)
    const s3 = await startS3()
    onTestFinished(() => s3.stop())
    const [apiPort, workerPort] = [await findFreePort(), await findFreePort()]
    const own = {
      MILLRACE_REDIS_PREFIX: keyPrefix,
      OTEL_EXPORTER_PROMETHEUS_PORT: '0',
      S3_ACCESS_KEY_ID: s3.config.accessKeyId,
      S3_SECRET_ACCESS_KEY: s3.config.secretAccessKey,
    }
    // The names of the compose network, and the addresses that replace them here.
    const replaced: readonly (readonly [string | RegExp, string])[] = [
      [/^redis:\/\/redis:6379$/, redisUrl],
      [/^http:\/\/objects:9000$/, s3.config.endpoint ?? ''],
      [/^postgres:\/\/millrace:\w+@postgres:5432\/millrace$/, databaseUrl],
      [/^mail$/, mail.host],
      [/^1025$/, String(mail.port)],
      [/^8081$/, String(apiPort)],
      [/^9101$/, String(workerPort)],
    ]
    for (const [name, port] of [
      ['api', apiPort],
      ['worker', workerPort],
    ] as const) {
      const service = await readComposedService(name, secrets)
      const place = join(folder, name)
      await mkdir(join(place, 'data'), { recursive: true })
      await service.writeImage(place)
      const env = mapValues({ ...service.env, ...own }, (value) =>
        [...replaced, [/^\/data$/, join(place, 'data')] as const].reduce(
          (text, [from, to]) => text.replace(from, to),
          value,
        ),
      )
      const child = await startInPlace(place, service, env)
      onTestFinished(() => child.stop())
      await waitUntil(() => runHealthCheck(service, port), { timeoutMs: START_TIMEOUT_MS, child })
    }

    const apiKey = toVariables(secrets).MILLRACE_BOOTSTRAP_API_KEY ?? ''
    const client = new OpenAI({ baseURL: `http://127.0.0.1:${apiPort}/v1`, apiKey })
    const answer = await client.chat.completions.create({
      model: 'tiny-chat',
      temperature: 0,
      messages: [{ role: 'user', content: 'What is the plural of box?' }],
    })
    expect(answer.choices[0]?.message.content).toContain('boxes')
    // Sharp in either image, and a WAV file.
    const square = { create: { width: 64, height: 64, channels: 3, background: 'red' } } as const
    const image = await toFile(await sharp(square).png().toBuffer(), 'square.png')
    const varied = await client.images.createVariation({ image, model: 'tiny-sd', size: '256x256' })
    expect(varied.data).toHaveLength(1)
    const clip = await toFile(await readFile(join(ROOT, 'test/fixtures/audio/en-1.wav')), 'en.wav')
    const transcript = await client.audio.transcriptions.create({
      file: clip,
      model: 'tiny-whisper',
    })
    expect(transcript.text).not.toBe('')
    const file = await client.files.create({
      file: await toFile(Buffer.from('{"text":"a"}\n'), 'a.jsonl'),
      purpose: 'search' as 'batch',
    })
    expect(await (await client.files.content(file.id)).text()).toBe('{"text":"a"}\n')
  })
})

async function makeSecrets(folder: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  await mkdir(join(folder, 'deploy'), { recursive: true })
  const script = join(folder, 'deploy', 'compose-env.sh')
  await cp(join(ROOT, 'deploy/compose-env.sh'), script)
  expect(spawnSync('sh', [script], { env: { ...process.env, ...env } }).status).toBe(0)
  return readFile(join(folder, '.env'), 'utf8')
}

function toVariables(secrets: string): Record<string, string> {
  return Object.fromEntries(
    secrets
      .trim()
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
}

function mapValues<Value, Changed>(
  record: Readonly<Record<string, Value>>,
  change: (value: Value) => Changed,
): Record<string, Changed> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value)]))
}

/** Runs the image's command in its folder, with its environment and no other. */
function startInPlace(place: string, service: ComposedService, env: Record<string, string>) {
  const [, ...args] = service.command
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  return startChild({
    command: 'sh',
    args: [
      '-c',
      'cd "$0" && exec env -i "$@"',
      place,
      `PATH=${process.env.PATH}`,
      ...settings,
      process.execPath,
      ...args,
    ],
    logFile: join(place, 'log'),
    stopSignal: 'TERM',
  })
}

async function runHealthCheck(service: ComposedService, port: number): Promise<void> {
  const ports = { AUTH_API_PORT: String(port), MILLRACE_WORKER_METRICS_PORT: String(port) }
  const env = { ...process.env, ...ports }
  await promisify(execFile)(process.execPath, service.healthCheck.slice(1), { env })
}
