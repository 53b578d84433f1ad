import { send } from './api.js'

/**
 * @typedef {{ id: string, kind: string, capabilities: readonly string[], isReady: boolean }} Model
 */

/** The models of the caller, and whether a worker has loaded each. @returns {Promise<Model[]>} */
export async function loadModels() {
  const [models, engines] = await Promise.all(
    ['/v1/models', '/v1/engines'].map(async (path) => (await send({ path })).json()),
  )
  const ready = new Set(
    engines.data
      .filter((/** @type {{ ready: boolean }} */ engine) => engine.ready)
      .map((/** @type {{ id: string }} */ engine) => engine.id),
  )
  return models.data.map((/** @type {Model} */ model) => ({
    ...model,
    isReady: ready.has(model.id),
  }))
}
