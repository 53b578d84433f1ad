// Functions that are sent to the browser and run inside a page; each is self-contained.

/** Texts with less than 4.5:1 of contrast against what lies behind them. @returns {string[]} */
export function findFaintTexts() {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
  /** @param {string} color @returns {number[]} */
  const parse = (color) => {
    if (canvas === null) return [0, 0, 0, 0]
    canvas.clearRect(0, 0, 1, 1)
    canvas.fillStyle = color
    canvas.fillRect(0, 0, 1, 1)
    return [...canvas.getImageData(0, 0, 1, 1).data]
  }
  // Relative luminance as WCAG 2 defines it.
  /** @param {number[]} color */
  const luminance = (color) => {
    const [r = 0, g = 0, b = 0] = color.map((part) => {
      const share = part / 255
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  /** @param {Element | null} element @returns {number[]} */
  const backgroundOf = (element) => {
    if (element === null) return [255, 255, 255, 255]
    const color = parse(getComputedStyle(element).backgroundColor)
    return (color[3] ?? 0) > 250 ? color : backgroundOf(element.parentElement)
  }
  const faint = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    const text = walker.currentNode.textContent?.trim() ?? ''
    if (element === null || text === '' || !element.checkVisibility()) continue
    // Disabled elements may be faint.
    if (element.closest(':disabled') !== null) continue
    const [a = 0, b = 0] = [parse(getComputedStyle(element).color), backgroundOf(element)].map(
      luminance,
    )
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${text.slice(0, 40)}`)
  }
  return faint
}

/** How far the page reaches beyond its right edge, in pixels. @returns {number} */
export function overhang() {
  const { scrollWidth, clientWidth } = document.documentElement
  return Math.max(0, scrollWidth - clientWidth)
}

/** Images in the page that hostile texts would have made. @returns {number} */
export function countForeignImages() {
  return document.querySelectorAll('img[src="x"], [onerror]').length
}

/**
 * Traces that hostile names left in the page: handlers, elements, and links that are not pages.
 * @returns {string[]}
 */
export function findInjected() {
  /** @type {string[]} */
  const found = []
  for (const element of document.querySelectorAll('*')) {
    const { tagName } = element
    for (const { name } of element.attributes) {
      if (name.startsWith('on')) found.push(`${tagName} ${name}`)
    }
    if (['IFRAME', 'OBJECT', 'EMBED', 'BASE'].includes(tagName)) found.push(tagName)
    const target = element.getAttribute('href') ?? element.getAttribute('src')
    if (target === null || tagName === 'use') continue
    const { protocol, origin } = new URL(target, document.baseURI)
    if (!/^https?:$/.test(protocol) || origin !== location.origin)
      found.push(`${tagName} ${target}`)
  }
  return found
}

/** Records the microphone tracks of the page from now on; call it before the page's own scripts. */
export function noteMicrophones() {
  const devices = navigator.mediaDevices
  /** @type {MediaStreamTrack[]} */
  const tracks = []
  Object.assign(globalThis, { recordedMicrophones: tracks })
  const ask = devices.getUserMedia.bind(devices)
  devices.getUserMedia = async (constraints) => {
    const stream = await ask(constraints)
    tracks.push(...stream.getTracks())
    return stream
  }
}

/** How many microphones are on. @returns {number} */
export function microphones() {
  const page = /** @type {{ recordedMicrophones?: readonly MediaStreamTrack[] }} */ (globalThis)
  return (page.recordedMicrophones ?? []).filter(({ readyState }) => readyState === 'live').length
}

/** Closes the open dialog and presses its button before the page learns of the closing. */
export function reopenDialog() {
  const dialog = document.querySelector('dialog')
  const button = /** @type {HTMLElement | null | undefined} */ (dialog?.previousElementSibling)
  dialog?.close()
  button?.click()
}
