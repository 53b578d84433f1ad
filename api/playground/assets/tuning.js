import { eventsOf, send } from './api.js'
import { byId, element, say } from './dom.js'
import { createLossPlot } from './loss-plot.js'
import { createPanel, optionalNumber } from './panel.js'
import { inWords, Problem } from './problem.js'

/**
 * @typedef {{ level: string, message: string, type: string, data: Record<string, any> | null }}
 * TuningEvent
 */

/** The training of a model on a file of examples. @param {Parameters<typeof createPanel>[1] & { onModel: () => Promise<void> }} page */
export function createTuning(page) {
  const fileInput = byId('tuning-file', HTMLInputElement)
  const validationInput = byId('tuning-validation', HTMLInputElement)
  const faults = byId('tuning-faults', HTMLElement)
  const progress = byId('tuning-progress', HTMLElement)
  const step = byId('tuning-step', HTMLElement)
  const plot = createLossPlot(byId('tuning-plot', HTMLElement))
  const comparison = createComparison()

  return createPanel(
    {
      id: 'tuning',
      takes: ({ capabilities }) => capabilities.includes('fine-tune'),
      none: 'No model can be fine-tuned here. Give one the capability fine-tune in models.json.',
      describe: (model) => ({ path: '/v1/fine_tuning/jobs', json: bodyOf(model) }),
      run,
    },
    page,
  )

  /** @param {string} model @returns {Record<string, unknown>} */
  function bodyOf(model) {
    const suffix = byId('tuning-suffix', HTMLInputElement).value.trim()
    const hyperparameters = optionalNumber('n_epochs', byId('tuning-epochs', HTMLInputElement))
    return {
      model,
      training_file: 'file-…',
      ...(validationInput.files?.length === 1 && { validation_file: 'file-…' }),
      ...(suffix !== '' && { suffix }),
      ...optionalNumber('seed', byId('tuning-seed', HTMLInputElement)),
      method: { type: 'supervised', supervised: { hyperparameters } },
    }
  }

  /** @param {import('./api.js').ApiRequest} request @param {AbortSignal} signal */
  async function run(request, signal) {
    const file = fileInput.files?.[0]
    if (file === undefined) throw new Problem('Choose a file of examples first.')
    faults.replaceChildren()
    for (const part of [faults, progress]) part.hidden = true
    comparison.hide()
    plot.clear()
    const validation = validationInput.files?.[0]
    const json = {
      ...request.json,
      training_file: await upload(file, signal),
      ...(validation && { validation_file: await upload(validation, signal) }),
    }
    const job = await (await send({ path: request.path, json }, signal)).json()
    try {
      await follow(job.id, signal)
    } catch (error) {
      // If the job cannot be cancelled, it has already ended.
      if (signal.aborted) await cancel(job.id).catch(() => undefined)
      throw error
    }
    const ended = await (await send({ path: `/v1/fine_tuning/jobs/${job.id}` }, signal)).json()
    if (ended.status !== 'succeeded') {
      throw new Problem(ended.error?.message ?? `The job is ${ended.status}.`)
    }
    comparison.show(ended.model, ended.fine_tuned_model)
    await page.onModel()
    return `${ended.trained_tokens} tokens trained`
  }

  /** @param {string} id @param {AbortSignal} signal */
  async function follow(id, signal) {
    const path = `/v1/fine_tuning/jobs/${id}/events?stream=true`
    for await (const event of eventsOf(await send({ path }, signal))) show(event)
  }

  /** @param {TuningEvent} event */
  function show({ type, level, message, data }) {
    if (data !== null && level === 'error' && 'line' in data) {
      if (faults.hidden) faults.append(element('ol', { class: 'faults' }))
      faults.hidden = false
      const where = data.param === null ? '' : ` (${data.param})`
      faults.lastElementChild?.append(element('li', {}, `${message}${where}`))
      return
    }
    progress.hidden = false
    say(step, message)
    if (type === 'metrics' && data !== null) plot.add(data)
  }
}

/** @param {File} file @param {AbortSignal} signal @returns {Promise<string>} */
async function upload(file, signal) {
  const form = /** @type {const} */ ([
    ['purpose', 'fine-tune'],
    ['file', file],
  ])
  return (await (await send({ path: '/v1/files', form }, signal)).json()).id
}

/** @param {string} id */
async function cancel(id) {
  await send({ path: `/v1/fine_tuning/jobs/${id}/cancel`, json: {} })
}

/** Sends the same prompt to the base model and the tuned one, side by side. */
function createComparison() {
  const part = byId('tuning-compare', HTMLElement)
  const question = byId('tuning-question', HTMLTextAreaElement)
  const button = byId('tuning-ask', HTMLButtonElement)
  const places = [byId('tuning-base', HTMLElement), byId('tuning-tuned', HTMLElement)]
  /** @type {readonly string[]} */
  let models = []
  button.addEventListener('click', async () => {
    if (question.value.trim() === '') return question.focus()
    button.disabled = true
    await Promise.all(models.map((model, index) => ask(model, places[index])))
    button.disabled = false
  })

  /** @param {string} model @param {HTMLElement | undefined} place */
  async function ask(model, place) {
    if (place === undefined) return
    place.textContent = '…'
    const messages = [{ role: 'user', content: question.value }]
    const json = { model, messages, temperature: 0, max_tokens: 128 }
    place.textContent = await send({ path: '/v1/chat/completions', json })
      .then(async (answer) => (await answer.json()).choices[0].message.content ?? '')
      .catch(inWords)
  }

  return {
    hide() {
      part.hidden = true
    },
    /** @param {string} base @param {string} tuned */
    show(base, tuned) {
      models = [base, tuned]
      byId('tuning-model', HTMLElement).textContent = tuned
      for (const place of places) place.textContent = ''
      part.hidden = false
    },
  }
}
