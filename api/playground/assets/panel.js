import { element, say, within } from './dom.js'
import { inWords, Problem } from './problem.js'

/**
 * @typedef {import('./api.js').ApiRequest} ApiRequest
 * @typedef {import('./models.js').Model} Model
 *
 * The differences between panels.
 * @typedef {{
 *   id: string,
 *   takes: (model: Model) => boolean,
 *   none: string,
 *   describe: (model: string) => ApiRequest,
 *   run: (request: ApiRequest, signal: AbortSignal) => Promise<string>,
 * }} PanelSpec
 *
 * @typedef {{ id: string, setModels: (models: readonly Model[]) => void, isUsable: () => boolean,
 * describe: () => ApiRequest,
 *   stop: () => void }} Panel
 */

/**
 * The shared behaviour of all panels: models, sending, stopping, problems and timings.
 * @param {PanelSpec} spec @param {{ onChange: () => void, onSignedOut: (text: string) => void }}
 * page
 * @returns {Panel}
 */
export function createPanel(spec, page) {
  const root = /** @type {HTMLElement} */ (document.getElementById(spec.id))
  const form = within(root, 'form', HTMLFormElement)
  const select = within(root, '.model', HTMLSelectElement)
  const none = within(root, '.none', HTMLElement)
  const problem = within(root, '.problem', HTMLElement)
  const stats = within(root, '.stats', HTMLElement)
  const sendButton = within(root, '.send', HTMLButtonElement)
  const stopButton = within(root, '.stop', HTMLButtonElement)
  /** @type {AbortController | undefined} */
  let running

  const describe = () => spec.describe(select.value)
  for (const range of root.querySelectorAll('input[type="range"]'))
    showValue(/** @type {HTMLInputElement} */ (range))
  for (const event of ['input', 'change']) {
    form.addEventListener(event, () => {
      // Editing a field clears its error.
      say(problem, '')
      page.onChange()
    })
  }
  stopButton.addEventListener('click', () => running?.abort())
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void submit()
  })

  async function submit() {
    if (running !== undefined) return
    running = new AbortController()
    say(problem, '')
    stats.textContent = 'Working …'
    setBusy(true)
    try {
      stats.textContent = await spec.run(describe(), running.signal)
    } catch (error) {
      stats.textContent = ''
      const words = inWords(error)
      if (running.signal.aborted) stats.textContent = 'Stopped.'
      else if (error instanceof Problem && error.status === 401) page.onSignedOut(words)
      else say(problem, words)
    } finally {
      running = undefined
      setBusy(false)
      page.onChange()
    }
  }

  /** @param {boolean} isBusy */
  function setBusy(isBusy) {
    const hadFocus = document.activeElement === sendButton || document.activeElement === stopButton
    sendButton.hidden = isBusy
    stopButton.hidden = !isBusy
    // A hidden button loses the focus, so it moves to the button that replaces it.
    if (hadFocus) (isBusy ? stopButton : sendButton).focus()
  }

  return {
    id: spec.id,
    describe,
    stop: () => running?.abort(),
    isUsable: () => !form.hidden,
    setModels(models) {
      const suitable = models.filter(spec.takes)
      const chosen = select.value
      select.replaceChildren(
        ...suitable.map(({ id, isReady }) =>
          element('option', { value: id }, isReady ? id : `${id} (not loaded)`),
        ),
      )
      if (suitable.some(({ id }) => id === chosen)) select.value = chosen
      form.hidden = suitable.length === 0
      const isWaiting = suitable.length > 0 && suitable.every(({ isReady }) => !isReady)
      say(none, form.hidden ? spec.none : isWaiting ? WAITING : '')
    },
  }
}

const WAITING = 'No worker has this model loaded at the moment: requests wait until one has.'

/** The number beside a slider. @param {HTMLInputElement} range */
function showValue(range) {
  const value = range.closest('label')?.querySelector('.value')
  if (!value) return
  range.addEventListener('input', () => {
    value.textContent = Number(range.value).toFixed(1)
  })
}

/**
 * A number from a field, under a name, when it is set.
 * @param {string} name @param {HTMLInputElement} input @returns {Record<string, number>}
 */
export function optionalNumber(name, input) {
  return input.value.trim() === '' || Number.isNaN(input.valueAsNumber)
    ? {}
    : { [name]: input.valueAsNumber }
}

/**
 * Tokens, seconds and tokens per second of a text.
 * @param {{ startedAt: number, firstAt: number | undefined, usage: { prompt_tokens: number,
 * completion_tokens: number } | undefined }} timing
 */
export function speedOf({ startedAt, firstAt, usage }) {
  const endedAt = performance.now()
  const parts = []
  if (usage !== undefined) parts.push(`${usage.prompt_tokens} → ${usage.completion_tokens} tokens`)
  parts.push(`${((endedAt - startedAt) / 1000).toFixed(1)} s`)
  if (firstAt !== undefined)
    parts.push(`first after ${((firstAt - startedAt) / 1000).toFixed(2)} s`)
  if (
    firstAt !== undefined &&
    usage !== undefined &&
    usage.completion_tokens > 1 &&
    endedAt > firstAt
  ) {
    const perSecond = (usage.completion_tokens - 1) / ((endedAt - firstAt) / 1000)
    parts.push(`${perSecond.toFixed(perSecond < 100 ? 1 : 0)} tokens/s`)
  }
  return parts.join(' · ')
}
