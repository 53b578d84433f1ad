import uPlot from 'uplot'

const HEIGHT = 180

/** The curves of a training as it goes on. @param {HTMLElement} target */
export function createLossPlot(target) {
  /** @type {[number[], number[], (number | null)[]]} */
  let curves = [[], [], []]
  /** @type {uPlot | undefined} */
  let plot
  // Colours of a canvas do not follow the colour scheme by themselves.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plot?.redraw())
  new ResizeObserver(() => plot?.setSize(sizeOf(target))).observe(target)
  return {
    clear() {
      curves = [[], [], []]
      plot?.destroy()
      plot = undefined
    },
    /** Adds a step. @param {Record<string, any>} step */
    add({ step, train_loss: loss, valid_loss: validation = null }) {
      curves[0].push(step)
      curves[1].push(loss)
      curves[2].push(validation)
      if (plot === undefined) plot = new uPlot(optionsOf(target), curves, target)
      else plot.setData(curves)
    },
  }
}

/** @param {HTMLElement} target */
function sizeOf(target) {
  return { width: Math.max(200, target.clientWidth), height: HEIGHT }
}

/** @param {HTMLElement} target @returns {uPlot.Options} */
function optionsOf(target) {
  const colour = (/** @type {string} */ name) => () =>
    getComputedStyle(document.documentElement).getPropertyValue(name)
  const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 } }
  const line = { width: 2, points: { size: 4 } }
  return {
    ...sizeOf(target),
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false },
      y: { range: (_plot, _min, max) => [0, Math.max(max ?? 0, 0.1) * 1.1] },
    },
    axes: [axis, { ...axis, size: 48 }],
    series: [
      {},
      { ...line, label: 'training', stroke: colour('--accent') },
      { ...line, label: 'validation', stroke: colour('--warn'), spanGaps: true },
    ],
  }
}
