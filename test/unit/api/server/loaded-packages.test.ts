import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

import { expect, it } from 'vitest'

// Prints the packages of which a process that serves users alone loads a module.
const SCRIPT = `
import { registerHooks } from 'node:module'
const packages = new Set()
registerHooks({
  load(url, context, nextLoad) {
    packages.add(/.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1])
    return nextLoad(url, context)
  },
})
await import('#api/server/main.ts')
await import('#api/auth/plugin.ts')
process.stdout.write(JSON.stringify([...packages]), () => process.exit(0))
`

it('loads no queues, mail, QR codes or object storage for the user server', async () => {
  const args = ['--input-type=module', '--eval', SCRIPT]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  const packages = JSON.parse(stdout) as string[]
  expect(packages).toEqual(expect.arrayContaining(['fastify', 'pg', 'ioredis', 'jose']))
  const unneeded = ['bullmq', 'nodemailer', 'qrcode', '@aws-sdk/client-s3', 'onnxruntime-node']
  expect(packages.filter((name) => unneeded.includes(name))).toEqual([])
}, 60_000)
