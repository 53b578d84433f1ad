import { createRandom } from '#test/support/random.ts'

// The part of a large installation that saturates first: the measured costs of one completion, with
// models that are spread over several Redis at random. Prints the table of docs/sizing.md.

/** Processor time in milliseconds by the group `processes`: of a completion, and of each token. */
const COSTS = {
  api: { completion: 1.7, token: 0.13 },
  redis: { completion: 0.65, token: 0.025 },
}
const TOKENS_PER_ANSWER = 300
const TOKENS_PER_SECOND = 20 // for each stream
const MODELS = 20 // their shares of the requests follow Zipf's law
const LOAD_MAX = 0.7 // a share of a core; above it waits grow quickly
const TRIALS = 1000

const random = createRandom(1)
const shares = zipf(MODELS)

function zipf(count: number): readonly number[] {
  const raw = Array.from({ length: count }, (_, at) => 1 / (at + 1))
  const total = raw.reduce((sum, weight) => sum + weight, 0)
  return raw.map((weight) => weight / total)
}

/** The mean share of the Redis with the most requests, when each model has one of them. */
function shareOfFullest(servers: number): number {
  let sum = 0
  for (let trial = 0; trial < TRIALS; trial += 1) {
    const filled = Array<number>(servers).fill(0)
    for (const share of shares) {
      const server = Math.floor(random() * servers)
      filled[server] = (filled[server] ?? 0) + share
    }
    sum += Math.max(...filled)
  }
  return sum / TRIALS
}

/** Cores that a part needs for some streams. */
function coresOf({ completion, token }: (typeof COSTS)['api'], streams: number): number {
  const tokens = streams * TOKENS_PER_SECOND
  return ((tokens / TOKENS_PER_ANSWER) * completion + tokens * token) / 1000
}

console.log('| streams | API processes | Redis | load of the fullest Redis |\n|---|---|---|---|')
for (const streams of [1000, 3000, 10_000, 30_000, 100_000]) {
  const processes = Math.ceil(coresOf(COSTS.api, streams) / LOAD_MAX)
  const redis = coresOf(COSTS.redis, streams)
  for (const servers of [1, 4, MODELS]) {
    const load = redis * (servers === MODELS ? Math.max(...shares) : shareOfFullest(servers))
    console.log(`| ${[streams, processes, servers, load.toFixed(2)].join(' | ')} |`)
    if (load <= LOAD_MAX) break
  }
}
