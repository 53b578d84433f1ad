import { eventsOf, send } from './api.js'
import { byId, element } from './dom.js'
import { createPanel, optionalNumber, speedOf } from './panel.js'

/** A streamed completion. @param {Parameters<typeof createPanel>[1]} page */
export function createCompletion(page) {
  const text = byId('completion-text', HTMLTextAreaElement)
  const stop = byId('completion-stop', HTMLInputElement)
  const result = byId('completion-result', HTMLElement)
  return createPanel(
    {
      id: 'completion',
      takes: ({ kind, capabilities }) =>
        kind === 'completion' && capabilities.includes('completion'),
      none: 'No completion model is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({
        path: '/v1/completions',
        json: {
          model,
          prompt: text.value,
          temperature: byId('completion-temperature', HTMLInputElement).valueAsNumber,
          ...optionalNumber('max_tokens', byId('completion-max', HTMLInputElement)),
          ...(stop.value !== '' && { stop: stop.value }),
          ...optionalNumber('seed', byId('completion-seed', HTMLInputElement)),
          stream: true,
          stream_options: { include_usage: true },
        },
      }),
      async run(request, signal) {
        const startedAt = performance.now()
        /** @type {number | undefined} */
        let firstAt
        let usage
        const more = element('span')
        result.replaceChildren(element('span', { class: 'given' }, text.value), more)
        result.hidden = false
        result.setAttribute('aria-busy', 'true')
        try {
          for await (const chunk of eventsOf(await send(request, signal))) {
            const piece = chunk.choices[0]?.text ?? ''
            if (piece !== '') firstAt ??= performance.now()
            usage = chunk.usage ?? usage
            more.append(piece)
          }
        } finally {
          result.removeAttribute('aria-busy')
          result.hidden = more.textContent === ''
        }
        return speedOf({ startedAt, firstAt, usage })
      },
    },
    page,
  )
}
