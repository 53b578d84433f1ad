import { json, type Answer } from './context.ts'
import type { AuthServices } from './services.ts'

/** The name of this server. Clients look for the name of the server that they were written for. */
export async function health(services: AuthServices): Promise<Answer> {
  return json({
    version: services.version,
    name: 'GoTrue',
    description: 'GoTrue is a user registration and authentication API',
  })
}
