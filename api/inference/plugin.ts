import multipart from '@fastify/multipart'
import type { FastifyPluginAsync } from 'fastify'

import type { Dialect } from '#shared/config/inference.ts'

import { registerAudio } from './audio/audio.ts'
import { registerChatBatch } from './chat/chat-batch.ts'
import { registerChatCompletions } from './chat/chat-completions.ts'
import { registerStoredChats } from './chat/stored-chats.ts'
import { registerCohereEmbed } from './cohere/cohere-embed.ts'
import { registerCompletions } from './completions/completions.ts'
import { registerEdits } from './completions/edits.ts'
import { registerEmbedSparse } from './embeddings/embed-sparse.ts'
import { registerEmbeddings } from './embeddings/embeddings.ts'
import { registerMultiVector } from './embeddings/multi-vector.ts'
import { registerSearch } from './embeddings/search.ts'
import { registerEngines } from './engines.ts'
import { registerImageForms, registerImageGenerations } from './images/images.ts'
import { registerKeys } from './keys.ts'
import { registerMessages } from './messages/messages.ts'
import { registerModels } from './models.ts'
import { registerClassify } from './moderations/classify.ts'
import { registerModerations } from './moderations/moderations.ts'
import { registerRerank } from './rerank/rerank.ts'
import { registerScore } from './rerank/score.ts'
import { registerCompaction } from './responses/compact.ts'
import { registerInputTokens } from './responses/input-tokens.ts'
import { registerResponses } from './responses/responses.ts'
import { registerStoredResponses } from './responses/stored-routes.ts'
import type { InferenceServices } from './services.ts'
import { registerSpeech } from './speech/speech.ts'
import { registerVoices } from './speech/voices.ts'
import { registerTokenize } from './tokenize.ts'

/** The inference surface of `/v1`. */
export function inferencePlugin(services: InferenceServices): FastifyPluginAsync {
  const serves = (dialect: Dialect): boolean =>
    services.config.dialectsOff?.includes(dialect) !== true
  return async (app) => {
    registerCompletions(app, services)
    registerChatCompletions(app, services)
    registerResponses(app, services)
    registerCompaction(app, services)
    registerInputTokens(app, services)
    if (services.stored !== undefined) {
      registerStoredResponses(app, services.stored)
      registerStoredChats(app, services.stored)
    }
    if (serves('anthropic')) registerMessages(app, services)
    registerEdits(app, services)
    registerEmbeddings(app, services)
    registerEmbedSparse(app, services)
    if (serves('cohere')) registerCohereEmbed(app, services, '1')
    registerMultiVector(app, services)
    registerRerank(app, services)
    registerModerations(app, services)
    if (serves('vllm')) {
      registerChatBatch(app, services)
      registerClassify(app, services)
    }
    if (serves('rerank')) registerScore(app, services)
    registerSearch(app, services)
    registerImageGenerations(app, services)
    registerSpeech(app, services)
    registerVoices(app, services)
    // Only these routes read forms; the others refuse them as a body of the wrong type.
    await app.register(async (forms) => {
      await forms.register(multipart)
      registerImageForms(forms, services)
      registerAudio(forms, services)
    })
    registerTokenize(app, services)
    registerModels(app, services)
    registerEngines(app, services)
    registerKeys(app, services)
  }
}
