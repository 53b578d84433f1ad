import { startToyWorker } from './toy-worker.ts'

// A toy worker in a process of its own: arguments are the Redis address, key prefix and slots.
const [redisUrl = '', prefix = '', slots = '16'] = process.argv.slice(2)
const worker = await startToyWorker(redisUrl, prefix, Number(slots))
process.stdout.write(`ready ${worker.workerId}\n`)
process.on('SIGTERM', () => void worker.stop().then(() => process.exit(0)))
