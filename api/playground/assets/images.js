import { send } from './api.js'
import { byId, element } from './dom.js'
import { createEasel } from './easel.js'
import { createPanel, optionalNumber } from './panel.js'
import { inWords, Problem } from './problem.js'

/** Images: generation, edits and variations. @param {Parameters<typeof createPanel>[1]} page */
export function createImages(page) {
  const task = byId('image-task', HTMLSelectElement)
  const prompt = byId('image-prompt', HTMLTextAreaElement)
  const size = byId('image-size', HTMLSelectElement)
  const fileInput = byId('image-file', HTMLInputElement)
  const result = byId('image-result', HTMLElement)
  const easel = createEasel()
  /** @type {Blob | undefined} */
  let source
  /** The error of the chosen file, if any. */
  let fault = ''

  const sideOf = () => Number(size.value.split('x')[0])
  /** @param {Blob} image */
  async function take(image) {
    try {
      await easel.setImage(image, sideOf())
      source = image
      fault = ''
    } catch (error) {
      fault = inWords(error)
    }
    arrange()
    fileInput.reportValidity()
    page.onChange()
  }

  function arrange() {
    byId('image-prompt-field', HTMLElement).hidden = task.value === 'variations'
    byId('image-source', HTMLElement).hidden = task.value === 'generations'
    byId('mask-tools', HTMLElement).hidden = task.value !== 'edits'
    easel.setPaintable(task.value === 'edits')
    // A hidden required field would block the form.
    fileInput.setCustomValidity(task.value === 'generations' ? '' : fault)
  }

  task.addEventListener('change', arrange)
  fileInput.addEventListener('change', () => {
    const file = fileInput.files?.[0]
    if (file !== undefined) void take(file)
  })
  size.addEventListener('change', () => {
    if (source !== undefined) void take(source)
  })
  arrange()

  const panel = createPanel(
    {
      id: 'images',
      takes: ({ kind }) => kind === 'image',
      none: 'No image model is served here, so no image can be made. Add one of kind “image” to models.json and start a worker for it.',
      describe(model) {
        const fields = {
          model,
          ...(task.value !== 'variations' && { prompt: prompt.value }),
          n: byId('image-count', HTMLInputElement).valueAsNumber || 1,
          size: size.value,
          ...optionalNumber('steps', byId('image-steps', HTMLInputElement)),
          ...optionalNumber('seed', byId('image-seed', HTMLInputElement)),
          response_format: 'b64_json',
        }
        const path = `/v1/images/${task.value}`
        if (task.value === 'generations') return { path, json: fields }
        const files = task.value === 'edits' ? ['image', 'mask'] : ['image']
        return {
          path,
          form: [
            ...files.map((name) => /** @type {const} */ ([name, new File([], `${name}.png`)])),
            ...Object.entries(fields).map(
              ([name, value]) => /** @type {const} */ ([name, String(value)]),
            ),
          ],
        }
      },
      async run(request, signal) {
        const startedAt = performance.now()
        const answer = await (await send(await withFiles(request), signal)).json()
        /** @type {{ b64_json: string }[]} */
        const images = answer.data
        for (const image of result.querySelectorAll('img')) URL.revokeObjectURL(image.src)
        result.replaceChildren(...images.map((image, index) => show(image.b64_json, index)))
        const count = images.length === 1 ? '1 image' : `${images.length} images`
        return `${count} · ${((performance.now() - startedAt) / 1000).toFixed(1)} s`
      },
    },
    page,
  )
  return panel

  /**
   * The request with the image and mask files inserted for their names. @param
   * {import('./api.js').ApiRequest} request
   */
  async function withFiles(request) {
    if (task.value !== 'variations' && prompt.value.trim() === '') {
      throw new Problem('Say what should be seen.')
    }
    if (request.form === undefined) return request
    if (!easel.hasImage) throw new Problem('Choose an image first.')
    if (task.value === 'edits' && !easel.isPainted) {
      throw new Problem('Paint over the part that should be redrawn first.')
    }
    /** @type {Record<string, () => Promise<File>>} */
    const files = { image: easel.image, mask: easel.mask }
    const form = await Promise.all(
      request.form.map(
        async ([name, value]) => /** @type {const} */ ([name, (await files[name]?.()) ?? value]),
      ),
    )
    return { path: request.path, form }
  }

  /** @param {string} base64 @param {number} index */
  function show(base64, index) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
    const blob = new Blob([bytes], { type: 'image/png' })
    const address = URL.createObjectURL(blob)
    const alt = task.value === 'variations' ? `Variation ${index + 1}` : prompt.value
    const edit = element('button', { type: 'button', class: 'compact' }, 'Redraw a part')
    edit.addEventListener('click', async () => {
      task.value = 'edits'
      arrange()
      await take(blob)
      byId('mask-canvas', HTMLCanvasElement).focus()
    })
    return element(
      'figure',
      {},
      element('img', { src: address, alt }),
      element(
        'figcaption',
        {},
        element(
          'a',
          { class: 'button compact', href: address, download: `image-${index + 1}.png` },
          'Save',
        ),
        edit,
      ),
    )
  }
}
