import type { FastifyPluginAsync } from 'fastify'

import { registerChatCompletions } from './chat-completions.ts'
import { registerCompletions } from './completions.ts'
import { registerEdits } from './edits.ts'
import { registerEmbeddings } from './embeddings.ts'
import { registerEngines } from './engines.ts'
import { registerKeys } from './keys.ts'
import { registerModels } from './models.ts'
import { registerRerank } from './rerank.ts'
import { registerSearch } from './search.ts'
import type { InferenceServices } from './services.ts'

/** The inference surface of `/v1`. */
export function inferencePlugin(services: InferenceServices): FastifyPluginAsync {
  return async (app) => {
    registerCompletions(app, services)
    registerChatCompletions(app, services)
    registerEdits(app, services)
    registerEmbeddings(app, services)
    registerRerank(app, services)
    registerSearch(app, services)
    registerModels(app, services)
    registerEngines(app, services)
    registerKeys(app, services)
  }
}
