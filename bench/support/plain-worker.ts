import { Worker } from 'bullmq'

import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'

// A bare BullMQ worker in a process of its own: arguments are Redis address, prefix, queue name.
const [url = '', prefix = '', name = ''] = process.argv.slice(2)
const connection = await openRedis(url, 'worker', createLogger({ level: 'silent' }))
const worker = new Worker(name, async () => null, { connection, prefix, concurrency: 16 })
await worker.waitUntilReady()
process.stdout.write('ready plain\n')
