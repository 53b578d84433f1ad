// Preloaded into a process that is measured: at SIGUSR2 it collects garbage and prints the memory
// in use.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose_gc')
const collect = runInNewContext('gc')
process.on('SIGUSR2', () => {
  collect()
  const { heapUsed, external, rss } = process.memoryUsage()
  process.stdout.write(`memory ${JSON.stringify({ heapUsed, external, rss })}\n`)
})
