import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { startToyWorker } from './toy-worker.ts'

// A toy worker in a process of its own: arguments are the Redis address, key prefix and slots.
const [redisUrl = '', prefix = '', slots = '16'] = process.argv.slice(2)
const worker = await startToyWorker(redisUrl, prefix, Number(slots))
// Reports the memory in use after a garbage collection, on a signal.
setFlagsFromString('--expose_gc')
const collect = runInNewContext('gc') as () => void
process.on('SIGUSR2', () => {
  collect()
  process.stdout.write(`heap ${process.memoryUsage().heapUsed}\n`)
})
process.stdout.write(`ready ${worker.workerId}\n`)
process.on('SIGTERM', () => void worker.stop().then(() => process.exit(0)))
