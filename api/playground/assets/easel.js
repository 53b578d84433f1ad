import { byId } from './dom.js'
import { Problem } from './problem.js'

/** The distance of one arrow key press, as a share of the side. */
const STEP = 1 / 32
/** @type {Record<string, readonly [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

/**
 * An image with a mask painted over the part to regenerate; painting fires `input` on the canvas.
 */
export function createEasel() {
  const easel = byId('image-easel', HTMLElement)
  const canvas = byId('image-canvas', HTMLCanvasElement)
  const overlay = byId('mask-canvas', HTMLCanvasElement)
  const brush = byId('mask-brush', HTMLInputElement)
  // The mask itself; the overlay also shows the brush.
  const paint = document.createElement('canvas')
  let isPainted = false
  let hasImage = false
  let isPaintable = false
  let at = { x: 0.5, y: 0.5 }

  /** @param {{ x: number, y: number }} from @param {{ x: number, y: number }} to */
  function stroke(from, to) {
    if (!isPaintable) return
    const side = paint.width
    const context = contextOf(paint)
    context.strokeStyle = '#000'
    context.lineCap = 'round'
    context.lineWidth = radius() * 2
    context.beginPath()
    context.moveTo(from.x * side, from.y * side)
    context.lineTo(to.x * side, to.y * side)
    context.stroke()
    // A line without length draws nothing, but a touch must leave a dot.
    context.beginPath()
    context.arc(to.x * side, to.y * side, radius(), 0, 2 * Math.PI)
    context.fill()
    isPainted = true
    show()
    overlay.dispatchEvent(new Event('input', { bubbles: true }))
  }

  /** In pixels of the image. */
  function radius() {
    return (brush.valueAsNumber / 200) * paint.width
  }

  function show() {
    const side = overlay.width
    const context = contextOf(overlay)
    context.clearRect(0, 0, side, side)
    if (!isPaintable) return
    context.globalAlpha = 0.65
    context.drawImage(paint, 0, 0)
    context.globalCompositeOperation = 'source-in'
    context.fillStyle = '#16836f'
    context.fillRect(0, 0, side, side)
    context.globalCompositeOperation = 'source-over'
    context.globalAlpha = 1
    if (document.activeElement !== overlay) return
    context.lineWidth = Math.max(1, side / 200)
    for (const [color, grow] of /** @type {const} */ ([
      ['#fff', 0],
      ['#000', context.lineWidth],
    ])) {
      context.strokeStyle = color
      context.beginPath()
      context.arc(at.x * side, at.y * side, radius() + grow, 0, 2 * Math.PI)
      context.stroke()
    }
  }

  function clear() {
    contextOf(paint).clearRect(0, 0, paint.width, paint.height)
    isPainted = false
    show()
    overlay.dispatchEvent(new Event('input', { bubbles: true }))
  }

  wirePointer(overlay, {
    move: (to) => {
      at = to
      show()
    },
    stroke,
  })
  overlay.addEventListener('keydown', (event) => {
    const arrow = ARROWS[event.key]
    const to = arrow && { x: clamp(at.x + arrow[0] * STEP), y: clamp(at.y + arrow[1] * STEP) }
    if (to === undefined && event.key !== ' ') return
    event.preventDefault()
    if (to === undefined) return stroke(at, at)
    at = to
    show()
  })
  overlay.addEventListener('focus', show)
  overlay.addEventListener('blur', show)
  brush.addEventListener('input', show)
  byId('mask-clear', HTMLButtonElement).addEventListener('click', clear)

  return {
    get hasImage() {
      return hasImage
    },
    get isPainted() {
      return isPainted
    },
    /** Sets whether there is an image to paint on. @param {boolean} next */
    setPaintable(next) {
      isPaintable = next
      overlay.hidden = !next
      show()
    },
    /** Loads the centre square of an image. @param {Blob} blob @param {number} side */
    async setImage(blob, side) {
      const bitmap = await createImageBitmap(blob).catch(() => {
        throw new Problem('This file is no image that the browser can read.')
      })
      for (const each of [canvas, overlay, paint]) {
        each.width = side
        each.height = side
      }
      const square = Math.min(bitmap.width, bitmap.height)
      const [x, y] = [(bitmap.width - square) / 2, (bitmap.height - square) / 2]
      contextOf(canvas).drawImage(bitmap, x, y, square, square, 0, 0, side, side)
      bitmap.close()
      hasImage = true
      easel.hidden = false
      clear()
    },
    /** The image as a file. */
    image: () => fileOf(canvas, 'image.png'),
    /** The mask as a file: transparent where the image is regenerated. */
    mask() {
      const mask = document.createElement('canvas')
      mask.width = paint.width
      mask.height = paint.height
      const context = contextOf(mask)
      context.fillRect(0, 0, mask.width, mask.height)
      context.globalCompositeOperation = 'destination-out'
      context.drawImage(paint, 0, 0)
      return fileOf(mask, 'mask.png')
    },
  }
}

/**
 * @param {HTMLCanvasElement} overlay
 * @param {{ move: (to: { x: number, y: number }) => void,
 *   stroke: (from: { x: number, y: number }, to: { x: number, y: number }) => void }} hand
 */
function wirePointer(overlay, hand) {
  /** @type {{ x: number, y: number } | undefined} */
  let last
  /** @param {PointerEvent} event */
  const place = (event) => {
    const box = overlay.getBoundingClientRect()
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height }
  }
  overlay.addEventListener('pointerdown', (event) => {
    overlay.setPointerCapture(event.pointerId)
    last = place(event)
    hand.move(last)
    hand.stroke(last, last)
  })
  overlay.addEventListener('pointermove', (event) => {
    if (last === undefined) return
    const to = place(event)
    hand.move(to)
    hand.stroke(last, to)
    last = to
  })
  for (const end of /** @type {const} */ (['pointerup', 'pointercancel'])) {
    overlay.addEventListener(end, () => {
      last = undefined
    })
  }
}

/** @param {HTMLCanvasElement} canvas */
function contextOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'))
}

/** @param {HTMLCanvasElement} canvas @param {string} name @returns {Promise<File>} */
async function fileOf(canvas, name) {
  /** @type {Blob | null} */
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'))
  if (blob === null) throw new Problem('The browser could not write the image.')
  return new File([blob], name, { type: 'image/png' })
}

/** @param {number} share */
function clamp(share) {
  return Math.min(1, Math.max(0, share))
}
