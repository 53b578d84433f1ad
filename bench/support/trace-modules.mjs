// Preloaded into a tier: each SIGUSR2 prints the functions that ran since the last one, by file.
import { Session } from 'node:inspector/promises'

const PRODUCT = /^file:(?!.*\/node_modules\/).*\/(api|workers|shared)\//

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

process.on('SIGUSR2', async () => {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const files = result.flatMap(({ url, functions }) => {
    if (!PRODUCT.test(url)) return []
    const ran = functions.filter(({ ranges }) => ranges[0].count > 0)
    // A function is named by the place of its text, because many have no name.
    const places = ran.map(({ ranges }) => ranges[0].startOffset)
    return ran.length === 0 ? [] : [[url, places]]
  })
  process.stdout.write(`modules ${JSON.stringify(files)}\n`)
})
