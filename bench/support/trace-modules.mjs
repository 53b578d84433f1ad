// Preloaded into a tier: each SIGUSR2 prints the files whose functions ran since the last one.
import { Session } from 'node:inspector/promises'

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

process.on('SIGUSR2', async () => {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const files = result
    .filter(({ functions }) => functions.some(({ ranges }) => ranges[0].count > 0))
    .map(({ url }) => url)
  process.stdout.write(`modules ${JSON.stringify(files)}\n`)
})
