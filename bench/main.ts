import { mkdir, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'

import { benchActivities } from './activities.ts'
import { benchAdapters } from './adapters.ts'
import { benchAudio } from './audio.ts'
import { benchBackground } from './background.ts'
import { benchContinuous } from './continuous.ts'
import { benchDecoderForms } from './decoder-forms.ts'
import { benchDevice } from './device.ts'
import { benchDrafts } from './drafts.ts'
import { benchEmbeddings } from './embeddings.ts'
import { benchEqualAnswers } from './equal-answers.ts'
import { describeFigure, type Figure, isMet } from './figure.ts'
import { benchFirstToken } from './first-token.ts'
import { benchGenai } from './genai.ts'
import { benchHostile } from './hostile.ts'
import { benchIdle } from './idle.ts'
import { benchImages } from './images.ts'
import { benchLlamaCpp } from './llama-cpp.ts'
import { benchMemory } from './memory.ts'
import { benchNoop } from './noop.ts'
import { benchOverload } from './overload.ts'
import { benchProcesses } from './processes.ts'
import { benchQueues } from './queues.ts'
import { benchRoutes } from './routes.ts'
import { benchSampling } from './sampling.ts'
import { benchSignIns } from './sign-ins.ts'
import { benchSlowClients } from './slow-clients.ts'
import { benchSpeech } from './speech.ts'
import { benchStartUp } from './start-up.ts'
import { benchStreams } from './streams.ts'
import { describeSurroundings } from './surroundings.ts'
import { benchTraining } from './training.ts'
import { benchTrainingSpeed } from './training-speed.ts'
import { benchTransfer } from './transfer.ts'
import { benchTransformersJs } from './transformers-js.ts'
import { benchUserServer } from './user-server.ts'
import { benchVision } from './vision.ts'

const BENCHES: Readonly<Record<string, () => Promise<readonly Figure[]>>> = {
  // First: memory that another group has touched would hide what it measures.
  memory: benchMemory,
  noop: benchNoop,
  streams: benchStreams,
  sampling: benchSampling,
  'transformers-js': benchTransformersJs,
  'llama-cpp': benchLlamaCpp,
  continuous: benchContinuous,
  'decoder-forms': benchDecoderForms,
  genai: benchGenai,
  adapters: benchAdapters,
  device: benchDevice,
  'first-token': benchFirstToken,
  drafts: benchDrafts,
  embeddings: benchEmbeddings,
  audio: benchAudio,
  speech: benchSpeech,
  vision: benchVision,
  training: () => benchTraining(),
  'training-speed': benchTrainingSpeed,
  images: benchImages,
  transfer: benchTransfer,
  'sign-ins': benchSignIns,
  'user-server': benchUserServer,
  routes: benchRoutes,
  'equal-answers': () => benchEqualAnswers(),
  activities: benchActivities,
  overload: benchOverload,
  queues: benchQueues,
  background: benchBackground,
  processes: benchProcesses,
  'start-up': benchStartUp,
  idle: benchIdle,
  'slow-clients': benchSlowClients,
  hostile: benchHostile,
}

const { values, positionals } = parseArgs({
  options: { only: { type: 'string' }, json: { type: 'string' } },
  allowPositionals: true,
})
const wanted = values.only ?? positionals[0]
if (wanted !== undefined && !(wanted in BENCHES)) {
  console.error(`no figures named "${wanted}"; there are: ${Object.keys(BENCHES).join(', ')}`)
  process.exit(2)
}
const surroundings = await describeSurroundings()
const figures: Figure[] = []
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted !== undefined && wanted !== name) continue
  const found = await bench()
  if (found.length === 0) console.log(`left out ${name}: bench/README.md says what it needs`)
  for (const figure of found) {
    figures.push(figure)
    console.log(describeFigure(figure))
  }
}
const file = values.json ?? `bench/results/${new Date().toISOString().replaceAll(':', '-')}.json`
await mkdir(dirname(file), { recursive: true })
const measured = figures.map((figure) => ({
  ...figure,
  ratio: figure.ours / figure.theirs,
  isMet: isMet(figure),
}))
await writeFile(file, JSON.stringify({ ...surroundings, figures: measured }, null, 2))
console.log(file)
process.exit(figures.every(isMet) ? 0 : 1)
