import { createRequire } from 'node:module'

import type { FastifySerializerCompiler, FastifyServerOptions } from 'fastify'

import { validatorCompiler } from './validation.ts'

// The compiler that Fastify depends on.
const require = createRequire(createRequire(import.meta.url).resolve('fastify'))

/**
 * Compiles the schemas of answers on their first use, and request schemas with the validator of all
 * surfaces. Fastify would load both of its own compilers and compile every answer at the start.
 */
export const SCHEMA_CONTROLLER = {
  compilersFactory: { buildSerializer, buildValidator: () => validatorCompiler('refuse') },
} as unknown as NonNullable<FastifyServerOptions['schemaController']>

function buildSerializer(): FastifySerializerCompiler<unknown> {
  let compiler: FastifySerializerCompiler<unknown> | undefined
  return (route) => {
    let serialize: ((data: unknown) => string) | undefined
    return (data) => {
      compiler ??= createCompiler()
      serialize ??= compiler(route)
      return serialize(data)
    }
  }
}

function createCompiler(): FastifySerializerCompiler<unknown> {
  const select = require('@fastify/fast-json-stringify-compiler') as () => (
    externalSchemas: object,
    options: object,
  ) => FastifySerializerCompiler<unknown>
  return select()({}, {})
}
