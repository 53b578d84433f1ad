import type { FastifyPluginAsync } from 'fastify'

import type { Dialect } from '#shared/config/inference.ts'

import { registerCohereEmbed } from './cohere/cohere-embed.ts'
import { registerCohereRerank } from './cohere/cohere-rerank.ts'
import { registerEmbed } from './embeddings/embed.ts'
import { registerEmbedSparse } from './embeddings/embed-sparse.ts'
import { registerSimilarity } from './embeddings/similarity.ts'
import { registerClassify } from './moderations/classify.ts'
import { registerPredict } from './moderations/predict.ts'
import { registerRerank } from './rerank/rerank.ts'
import { registerScore } from './rerank/score.ts'
import { errorResponses } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'
import { registerTokenize } from './tokenize.ts'

/** Routes that clients of other servers expect outside `/v1`. */
export function rootDialects(services: InferenceServices, version: string): FastifyPluginAsync {
  const off = services.config.dialectsOff ?? []
  const serves = (dialect: Dialect): boolean => !off.includes(dialect)
  return async (app) => {
    if (serves('rerank')) {
      registerCohereRerank(app, services)
      registerRerank(app, services, 'createRerankAtRoot')
      registerScore(app, services, 'createScoreAtRoot')
    }
    if (serves('cohere')) registerCohereEmbed(app, services, '2')
    if (serves('tei')) {
      registerEmbed(app, services)
      registerEmbedSparse(app, services, 'createSparseEmbeddingAtRoot')
      registerPredict(app, services)
      registerSimilarity(app, services)
    }
    if (!serves('vllm')) return
    registerTokenize(app, services, 'AtRoot')
    registerClassify(app, services, 'createClassificationAtRoot')
    app.get('/version', {
      config: { scope: 'any' },
      schema: {
        operationId: 'showVersion',
        summary: 'Show the version',
        tags: ['Health'],
        security: [{ apiKey: [] }],
        response: {
          200: {
            type: 'object',
            description: 'The version of the server.',
            required: ['version'],
            properties: { version: { type: 'string' } },
          },
          ...errorResponses(401, 403),
        },
      },
      handler: async () => ({ version }),
    })
    app.get('/load', {
      config: { scope: 'any' },
      schema: {
        operationId: 'showLoad',
        summary: 'Count the jobs in flight of this process',
        tags: ['Health'],
        security: [{ apiKey: [] }],
        response: {
          200: {
            type: 'object',
            description: 'The number of jobs in flight.',
            required: ['server_load'],
            properties: { server_load: { type: 'integer', minimum: 0 } },
          },
          ...errorResponses(401, 403),
        },
      },
      handler: async () => ({ server_load: services.jobsInFlight() }),
    })
    app.get('/ping', {
      config: { scope: 'none' },
      schema: {
        operationId: 'ping',
        summary: 'Report that the process is alive',
        tags: ['Health'],
        response: { 200: { type: 'object', description: 'The server is alive.' } },
      },
      handler: async () => ({}),
    })
  }
}
