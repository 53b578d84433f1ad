import { Agent, get } from 'node:http'

// Repeats one request in a process of its own, and prints on SIGUSR2 how long the longest answer
// took since the last time. Argument: the URL.
const [url = ''] = process.argv.slice(2)
const agent = new Agent({ keepAlive: true, maxSockets: 1 })
let longestMs = 0
let sinceMs = performance.now()

process.on('SIGUSR2', () => {
  // A request without an answer yet has taken at least this long.
  const soFar = Math.max(longestMs, performance.now() - sinceMs)
  longestMs = 0
  process.stdout.write(`longest ${soFar}\n`)
})
process.stdout.write('ready probe\n')
for (;;) {
  sinceMs = performance.now()
  await ask()
  longestMs = Math.max(longestMs, performance.now() - sinceMs)
  await new Promise((resolve) => setTimeout(resolve, 2))
  sinceMs = performance.now()
}

function ask(): Promise<void> {
  return new Promise((resolve) => {
    get(url, { agent }, (answer) => answer.resume().once('end', resolve)).once('error', () =>
      resolve(),
    )
  })
}
