import { send } from './api.js'
import { byId } from './dom.js'
import { createPanel } from './panel.js'
import { Problem } from './problem.js'

/** Text to speech, played in the page. @param {Parameters<typeof createPanel>[1]} page */
export function createSynthesis(page) {
  const text = byId('synthesis-text', HTMLTextAreaElement)
  const voice = byId('synthesis-voice', HTMLInputElement)
  const speed = byId('synthesis-speed', HTMLInputElement)
  const player = byId('synthesis-player', HTMLAudioElement)
  return createPanel(
    {
      id: 'synthesis',
      takes: ({ kind }) => kind === 'speech',
      none: 'No model that speaks is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({
        path: '/v1/audio/speech',
        json: {
          model,
          input: text.value,
          voice: voice.value.trim(),
          ...(speed.valueAsNumber !== 1 && { speed: speed.valueAsNumber }),
        },
      }),
      async run(request, signal) {
        if (text.value.trim() === '') throw new Problem('Enter a text to speak.')
        if (voice.value.trim() === '') throw new Problem('Enter the name of a voice.')
        const startedAt = performance.now()
        const spoken = await (await send(request, signal)).blob()
        const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
        URL.revokeObjectURL(player.src)
        player.src = URL.createObjectURL(spoken)
        player.hidden = false
        // Browsers may refuse to play before the user has touched the page; its button remains.
        await player.play().catch(() => undefined)
        return `${spoken.type} · ${Math.ceil(spoken.size / 1024)} KiB · ${seconds} s`
      },
    },
    page,
  )
}
