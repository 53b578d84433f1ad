import { eventsOf, send } from './api.js'
import { byId, element } from './dom.js'
import { createPanel, optionalNumber, speedOf } from './panel.js'

/** A conversation, streamed. @param {Parameters<typeof createPanel>[1]} page */
export function createChat(page) {
  const log = byId('chat-log', HTMLElement)
  const text = byId('chat-text', HTMLTextAreaElement)
  const system = byId('chat-system', HTMLTextAreaElement)
  const empty = /** @type {Element} */ (log.firstElementChild)
  const imageInput = byId('chat-images', HTMLInputElement)
  /** @type {{ role: 'user' | 'assistant', content: string | object[] }[]} */
  let turns = []
  /** Data URLs of the images of the next message. @type {readonly string[]} */
  let images = []

  const panel = createPanel(
    {
      id: 'chat',
      takes: ({ kind, capabilities }) => kind === 'completion' && capabilities.includes('chat'),
      none: 'No chat model is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({
        path: '/v1/chat/completions',
        json: {
          model,
          messages: [
            ...(system.value.trim() === '' ? [] : [{ role: 'system', content: system.value }]),
            ...turns,
            { role: 'user', content: contentOf(text.value, images) },
          ],
          temperature: byId('chat-temperature', HTMLInputElement).valueAsNumber,
          ...optionalNumber('max_tokens', byId('chat-max', HTMLInputElement)),
          ...optionalNumber('seed', byId('chat-seed', HTMLInputElement)),
          stream: true,
          stream_options: { include_usage: true },
        },
      }),
      run: answer,
    },
    page,
  )

  imageInput.addEventListener('change', async () => {
    images = await Promise.all(Array.from(imageInput.files ?? [], readAsDataUrl))
    page.onChange()
  })
  text.addEventListener('keydown', (event) => {
    // While an input method composes, Enter selects a word.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
    event.preventDefault()
    text.form?.requestSubmit()
  })
  byId('chat-new', HTMLButtonElement).addEventListener('click', () => {
    panel.stop()
    turns = []
    log.replaceChildren(empty)
    text.focus()
    page.onChange()
  })
  return panel

  /** @param {import('./api.js').ApiRequest} request @param {AbortSignal} signal */
  async function answer(request, signal) {
    const question = text.value
    const startedAt = performance.now()
    const shown = images
    const asked = addTurn(
      'user',
      shown.length === 0 ? question : `${question} [${shown.length} images]`,
    )
    const { turn, words } = addTurn('assistant', '')
    turn.setAttribute('aria-busy', 'true')
    text.value = ''
    images = []
    imageInput.value = ''
    /** @type {number | undefined} */
    let firstAt
    let usage
    let said = ''
    try {
      for await (const chunk of eventsOf(await send(request, signal))) {
        const piece = chunk.choices[0]?.delta.content ?? ''
        if (piece !== '') firstAt ??= performance.now()
        usage = chunk.usage ?? usage
        said += piece
        showMore(words, said)
      }
      return speedOf({ startedAt, firstAt, usage })
    } finally {
      turn.removeAttribute('aria-busy')
      if (said === '') {
        // Without an answer the question returns to the input field.
        asked.turn.remove()
        turn.remove()
        if (text.value === '') text.value = question
        images = shown
        if (log.childElementCount === 0) log.append(empty)
      } else if (turn.isConnected) {
        const content = contentOf(question, shown)
        turns.push({ role: 'user', content }, { role: 'assistant', content: said })
      }
    }
  }

  /** @param {'user' | 'assistant'} role @param {string} content */
  function addTurn(role, content) {
    empty.remove()
    const words = element('p', {}, content)
    const turn = element(
      'article',
      { class: `turn ${role}` },
      element('h3', {}, role === 'user' ? 'You' : 'Answer'),
      words,
    )
    log.append(turn)
    log.scrollTop = log.scrollHeight
    return { turn, words }
  }

  /**
   * Scrolls with the text, unless the user has scrolled up. @param {HTMLElement} words @param
   * {string} said
   */
  function showMore(words, said) {
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48
    words.textContent = said
    if (isAtEnd) log.scrollTop = log.scrollHeight
  }
}

/**
 * A message's content: its text, after its images where it has some. @param {string} text @param
 * {readonly string[]} images
 */
function contentOf(text, images) {
  if (images.length === 0) return text
  const parts = images.map((url) => ({ type: 'image_url', image_url: { url } }))
  return [...parts, { type: 'text', text }]
}

/** @param {Blob} file @returns {Promise<string>} */
function readAsDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result))
    reader.onerror = () => reject(reader.error)
    reader.readAsDataURL(file)
  })
}
