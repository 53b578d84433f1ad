import { Worker } from 'bullmq'
import { Redis } from 'ioredis'

// A bare BullMQ worker in a process of its own: arguments are Redis address, prefix, queue name.
const [url = '', prefix = '', name = ''] = process.argv.slice(2)
// Connected as BullMQ's documentation does it, without the shared connection's own tuning.
const connection = new Redis(url, { maxRetriesPerRequest: null })
const worker = new Worker(name, async () => null, { connection, prefix, concurrency: 16 })
await worker.waitUntilReady()
process.stdout.write('ready plain\n')
