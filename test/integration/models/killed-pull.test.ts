import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { withFileLock } from '#workers/models/file-lock.ts'

import { COMMIT, REPOSITORY, startHub } from './hub-server.ts'

const ROOT = join(import.meta.dirname, '../../..')
const WEIGHTS = randomBytes(400_000)

describe('a pull that is killed', () => {
  it('loads no incomplete file, and the next pull resumes from there', async ({
    folder,
    onTestFinished,
  }) => {
    const hub = await startHub({ 'config.json': '{}', 'onnx/model.onnx': WEIGHTS })
    onTestFinished(() => hub.close())
    let isStalling = true
    hub.instead = (request, response) => {
      const isWeights = decodeURIComponent(request.url ?? '').includes('model.onnx')
      if (!isStalling || !isWeights) return false
      response.writeHead(200, { 'content-length': WEIGHTS.length })
      response.write(WEIGHTS.subarray(0, 150_000))
      return true
    }
    const pull = () =>
      spawn(process.execPath, ['launcher/cli.ts', 'models', 'pull', REPOSITORY], {
        cwd: ROOT,
        env: { ...process.env, HF_ENDPOINT: hub.endpoint, MILLRACE_MODEL_CACHE: folder },
      })
    const place = join(folder, 'hub/models--someone--some-model')
    const blobs = () => readdir(join(place, 'blobs')).catch(() => [])
    const killed = pull()
    const died = once(killed, 'exit')
    const halfWay = async () => {
      const [part = ''] = await blobs()
      return (await readFile(join(place, 'blobs', part)).catch(() => '')).length
    }
    await expect.poll(halfWay, { timeout: 60_000 }).toBe(150_000)
    killed.kill('SIGKILL')
    await died
    expect(existsSync(join(place, 'snapshots', COMMIT, 'onnx/model.onnx'))).toBe(false)
    isStalling = false
    hub.seen.length = 0
    // So that it never looks old: the process that is not there has to be enough.
    const later = new Date(Date.now() + 3_600_000)
    await utimes(join(place, '.pull.lock'), later, later)
    const [code] = await once(pull(), 'exit')
    expect(code).toBe(0)
    expect(hub.seen.at(-1)).toMatchObject({ host: 'cdn', range: 'bytes=150000-' })
    const file = join(place, 'snapshots', COMMIT, 'onnx/model.onnx')
    expect(await readFile(file)).toEqual(WEIGHTS)
    expect(await blobs()).toEqual([])
    expect((await readdir(place)).toSorted()).toEqual(['blobs', 'listings', 'refs', 'snapshots'])
  }, 150_000)
})

describe('the lock of a folder', () => {
  it('is left to the next process by a holder that was suspended too long', async ({ folder }) => {
    const path = join(folder, 'lock')
    let next: Promise<void> | undefined
    let finish = (): void => {}
    await withFileLock(path, async () => {
      const longAgo = new Date(Date.now() - 60_000)
      await utimes(path, longAgo, longAgo)
      const taken = Promise.withResolvers<void>()
      next = withFileLock(path, async () => {
        taken.resolve()
        await new Promise<void>((resolve) => (finish = resolve))
      })
      await taken.promise
    })
    expect(existsSync(path)).toBe(true)
    finish()
    await next
    expect(await readdir(folder)).toEqual([])
  })

  it.for([undefined, 'nonsense', '{}'])(
    'is taken over from a crash that left it with the owner %s',
    async (owner, { folder }) => {
      const path = join(folder, 'lock')
      await mkdir(path)
      if (owner !== undefined) await writeFile(join(path, 'owner.json'), owner)
      const longAgo = new Date(Date.now() - 60_000)
      await utimes(path, longAgo, longAgo)
      let running = 0
      let most = 0
      const work = async () => {
        running += 1
        most = Math.max(most, running)
        await new Promise((resolve) => setTimeout(resolve, 20))
        running -= 1
      }
      await Promise.all(Array.from({ length: 8 }, () => withFileLock(path, work)))
      expect(most).toBe(1)
      expect(await readdir(folder)).toEqual([])
    },
  )
})
