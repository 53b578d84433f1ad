import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { findFreePort } from '#launcher/embedded/child.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { systemClock } from '#shared/clock.ts'
import { apiEnv } from '#test/support/tiers.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'

const BUDGET_MS = 300
const POLL_MS = 5
const READY_WITHIN_MS = 60_000
const REALISTIC = '.data/bench/smollm2-shape'
const SHIPPED = 'models/tiny-chat'

/**
 * From the start of an API process until it is ready, and of a worker's model against its bare
 * session.
 */
export async function benchStartUp(): Promise<readonly Figure[]> {
  return [...(await benchApi()), await benchModel()]
}

async function benchApi(): Promise<readonly Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const redis = await startRedis(folder, { password: 'bench', onProgress: () => {} })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const start = (env: Readonly<Record<string, string>>) => () =>
    msUntilReady({
      MILLRACE_DATA_DIR: folder,
      REDIS_URL: redis.url,
      LOG_LEVEL: 'warn',
      ...env,
      OTEL_EXPORTER_PROMETHEUS_PORT: '0',
      DATABASE_URL: postgres.url,
    })
  try {
    const found = await alternate(
      // As deploy/bootstrap.mjs starts it; the first round fills the folder.
      start({ NODE_COMPILE_CACHE: join(folder, 'compiled') }),
      start({ NODE_DISABLE_COMPILE_CACHE: '1' }),
    )
    const target = { atMost: 1 }
    const name = (how: string): string => `API process until it is ready, ${how} ÷ ${BUDGET_MS} ms`
    return [
      {
        name: name('compiled files kept'),
        unit: 'ms',
        target,
        ours: found.ours,
        theirs: BUDGET_MS,
      },
      {
        name: 'API process until it is ready, compiled files kept ÷ compiled anew',
        unit: 'ms',
        ...found,
        target,
      },
    ]
  } finally {
    await redis.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

async function msUntilReady(env: Readonly<Record<string, string>>): Promise<number> {
  const port = await findFreePort()
  const script = join(import.meta.dirname, '../launcher/cli.ts')
  const startedAt = performance.now()
  const child = spawn(process.execPath, [script, 'api'], {
    env: { ...process.env, ...apiEnv(env.DATABASE_URL ?? '', port), ...env },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const exited = once(child, 'exit')
  try {
    while (!(await isReady(port))) {
      const isLate = performance.now() - startedAt > READY_WITHIN_MS
      if (child.exitCode !== null || isLate) throw new Error('the API did not become ready')
      await sleep(POLL_MS)
    }
    return performance.now() - startedAt
  } finally {
    // The last lines of the compile cache are written when the process ends by itself.
    child.kill('SIGTERM')
    await exited
  }
}

function isReady(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const call = request({ port, host: '127.0.0.1', path: '/readyz', agent: false }, (response) => {
      response.resume()
      resolve(response.statusCode === 200)
    })
    call.on('error', () => resolve(false))
    call.end()
  })
}

/** The engine with everything it needs of a model, against a session of the same file. */
async function benchModel(): Promise<Figure> {
  const folder = existsSync(REALISTIC) ? REALISTIC : SHIPPED
  const runtime = openRuntime()
  const timeOf = async (open: () => Promise<{ close(): Promise<void> }>): Promise<number> => {
    const startedAt = performance.now()
    const opened = await open()
    const ms = performance.now() - startedAt
    await opened.close()
    return ms
  }
  const file = join(folder, folder === REALISTIC ? 'onnx/model.onnx' : 'onnx/model_quantized.onnx')
  try {
    const found = await alternate(
      () =>
        timeOf(async () => {
          // Side by side, as the worker does.
          const opening = openTextEngine({ runtime, folder, slots: 16 })
          const [engine] = await Promise.all([opening, loadTextModel(folder, systemClock)])
          return engine
        }),
      () => timeOf(() => runtime.load(file, {})),
    )
    const name = `load of ${folder} with tokenizer and cache ÷ a bare session of its file`
    return { name, unit: 'ms', ...found, target: { atMost: 1.1 } }
  } finally {
    await runtime.close()
  }
}
