import { send } from './api.js'
import { byId, element, say } from './dom.js'
import { createPanel } from './panel.js'
import { inWords, Problem } from './problem.js'
import { createRecorder } from './recorder.js'

/**
 * Speech to text, from a file or the microphone. @param {Parameters<typeof createPanel>[1]} page
 */
export function createSpeech(page) {
  const fileInput = byId('speech-file', HTMLInputElement)
  const player = byId('speech-player', HTMLAudioElement)
  const task = byId('speech-task', HTMLSelectElement)
  const language = byId('speech-language', HTMLInputElement)
  const times = byId('speech-times', HTMLInputElement)
  const result = byId('speech-result', HTMLElement)
  /** @type {File | undefined} */
  let file

  /** @param {File | undefined} chosen */
  function take(chosen) {
    file = chosen
    URL.revokeObjectURL(player.src)
    player.hidden = chosen === undefined
    if (chosen !== undefined) player.src = URL.createObjectURL(chosen)
    page.onChange()
  }

  fileInput.addEventListener('change', () => take(fileInput.files?.[0]))
  task.addEventListener('change', () => {
    byId('speech-language-field', HTMLElement).hidden = task.value === 'translations'
  })
  const microphone = wireMicrophone((recorded) => {
    fileInput.value = ''
    take(recorded)
  })

  const panel = createPanel(
    {
      id: 'speech',
      takes: ({ kind }) => kind === 'audio',
      none: 'No speech model is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({
        path: `/v1/audio/${task.value}`,
        form: [
          ['file', file ?? new File([], 'recording.wav')],
          ['model', model],
          ['response_format', times.checked ? 'verbose_json' : 'json'],
          ...(task.value === 'transcriptions' && language.value.trim() !== ''
            ? [/** @type {const} */ (['language', language.value.trim()])]
            : []),
        ],
      }),
      async run(request, signal) {
        if (file === undefined) throw new Problem('Choose a file or record something first.')
        const startedAt = performance.now()
        const answer = await (await send(request, signal)).json()
        const text = answer.text.trim()
        result.replaceChildren(text === '' ? 'No speech was found.' : text)
        if (answer.segments?.length > 0) result.append(showSegments(answer.segments))
        result.hidden = false
        const parts = [`${((performance.now() - startedAt) / 1000).toFixed(1)} s`]
        if (typeof answer.duration === 'number')
          parts.push(`${answer.duration.toFixed(1)} s of sound`)
        if (typeof answer.language === 'string') parts.push(answer.language)
        return parts.join(' · ')
      },
    },
    page,
  )
  return {
    ...panel,
    stop() {
      panel.stop()
      microphone.stop()
    },
  }
}

/** @param {(recorded: File) => void} onRecorded */
function wireMicrophone(onRecorded) {
  const button = byId('speech-record', HTMLButtonElement)
  const state = byId('speech-state', HTMLElement)
  const recorder = createRecorder({
    onTime: (seconds) => say(state, `Recording, ${seconds} s`),
  })
  button.addEventListener('click', async () => {
    if (recorder.isRecording) return recorder.stop()
    try {
      button.setAttribute('aria-pressed', 'true')
      button.textContent = 'Stop recording'
      onRecorded(await recorder.record())
      say(state, 'Recorded.')
    } catch (error) {
      say(state, inWords(error))
    } finally {
      button.setAttribute('aria-pressed', 'false')
      button.textContent = 'Record with the microphone'
    }
  })
  return recorder
}

/** @param {readonly { start: number, end: number, text: string }[]} segments */
function showSegments(segments) {
  return element(
    'ol',
    { class: 'times' },
    ...segments.map(({ start, end, text }) =>
      element(
        'li',
        {},
        element('time', {}, `${clock(start)} – ${clock(end)}`),
        element('span', {}, text.trim()),
      ),
    ),
  )
}

/** Seconds as minutes and seconds. @param {number} seconds */
export function clock(seconds) {
  const whole = Math.floor(seconds)
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}.${Math.floor((seconds - whole) * 10)}`
}
