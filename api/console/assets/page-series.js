import { useEffect, useId, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'

import { duration, figure } from './admin-figures.js'
import { html, place, read, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */
/**
 * @typedef {{ label: string, colour: string, value: (point: Row) => number | null }} Line
 * @typedef {{ title: string, format: (value: number) => string, lines: readonly Line[] }} Chart
 */

const REFRESH_MS = 10_000
const COLOURS = ['--chart-1', '--chart-2', '--chart-3']

/** The charts of the last hour or day. */
export function sections() {
  return html`<${Charts} start=${place.params.get('range') === 'day' ? 'day' : 'hour'} />`
}

const field = (/** @type {string} */ name) => (/** @type {Row} */ point) => point[name]

/** @type {readonly Chart[]} */
const CHARTS = [
  {
    title: 'Requests per minute',
    format: figure,
    lines: perMinute([
      ['all', 'requests'],
      ['refused (4xx)', 'refusals'],
      ['failed (5xx)', 'errors'],
    ]),
  },
  {
    title: 'Tokens per minute',
    format: figure,
    lines: perMinute([
      ['prompts', 'prompt_tokens'],
      ['completions', 'completion_tokens'],
    ]),
  },
  {
    title: 'Time to answer',
    format: duration,
    lines: plain([
      ['half within', 'latency_p50_ms'],
      ['95 % within', 'latency_p95_ms'],
      ['99 % within', 'latency_p99_ms'],
    ]),
  },
  {
    title: 'Wait in the queues',
    format: duration,
    lines: plain([
      ['95 % started within', 'queue_p95_ms'],
      ['oldest waiting job', 'oldest_wait_ms'],
    ]),
  },
  {
    title: 'Slots and waiting jobs',
    format: figure,
    lines: plain([
      ['slots', 'slots'],
      ['in use', 'slots_used'],
      ['waiting jobs', 'waiting'],
    ]),
  },
]

/** @param {readonly (readonly [string, string])[]} rows @returns {Line[]} */
function plain(rows) {
  return rows.map(([label, name], index) => ({
    label,
    colour: COLOURS[index] ?? '--ink',
    value: field(name),
  }))
}

/**
 * Counts of a bucket; `minutes` is set with each answer. @param {readonly (readonly [string,
 * string])[]} rows @returns {Line[]}
 */
function perMinute(rows) {
  return rows.map(([label, name], index) => ({
    label,
    colour: COLOURS[index] ?? '--ink',
    value: (point) => point[name] / point.minutes,
  }))
}

/** @param {{ start: string }} props */
function Charts({ start }) {
  const [range, setRange] = useState(start)
  const [points, setPoints] = useState(/** @type {Row[]} */ ([]))
  const [problem, setProblem] = useState('')
  useEffect(() => {
    const load = async () => {
      try {
        const { points: found, bucket_ms: bucketMs } = await read(`series?range=${range}`)
        setPoints(
          found.map((/** @type {Row} */ point) => ({ ...point, minutes: bucketMs / 60_000 })),
        )
        setProblem('')
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error))
      }
    }
    void load()
    const timer = setInterval(() => !document.hidden && load(), REFRESH_MS)
    return () => clearInterval(timer)
  }, [range])
  const choices = [
    ['hour', 'Last hour'],
    ['day', 'Last day'],
  ]
  return html`<div class="row" role="group" aria-label="Range">
      ${choices.map(([name, label]) => html`<button key=${name} type="button" class="compact" aria-pressed=${String(range === name)} onClick=${() => setRange(name ?? 'hour')}>${label}</button>`)}
    </div>
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    <div class="charts">
      ${CHARTS.map((chart) => html`<${ChartCard} key=${chart.title} chart=${chart} points=${points} />`)}
    </div>`
}

/**
 * A chart with its newest values as text, and all of them as a table. @param {{ chart: Chart,
 * points: readonly Row[] }} props
 */
function ChartCard({ chart, points }) {
  const id = useId()
  const { title, lines, format } = chart
  const shown = (/** @type {number | null | undefined} */ value) =>
    typeof value === 'number' ? format(value) : '–'
  return html`<section class="card stack" aria-labelledby=${id}>
    <h2 id=${id}>${title}</h2>
    <ul class="legend">
      ${lines.map(({ label, value }, index) => html`<li key=${label} class=${`line-${index + 1}`}>${label} <b>${shown(points.length > 0 ? value(points.at(-1) ?? {}) : null)}</b></li>`)}
    </ul>
    <${Plot} chart=${chart} points=${points} />
    <details>
      <summary>As a table</summary>
      <div class="scroll" tabindex="0" role="region" aria-labelledby=${id}>
        <table class="plain" aria-labelledby=${id}>
          <thead><tr><th scope="col">Time</th>${lines.map(({ label }) => html`<th scope="col" class="number" key=${label}>${label}</th>`)}</tr></thead>
          <tbody>${points.toReversed().map((point) => html`<tr key=${point.at}><td>${when(point.at)}</td>${lines.map(({ label, value }) => html`<td class="number" key=${label}>${shown(value(point))}</td>`)}</tr>`)}</tbody>
        </table>
      </div>
    </details>
  </section>`
}

/** @param {{ chart: Chart, points: readonly Row[] }} props */
function Plot({ chart, points }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => {
    const target = element.current
    if (target === null || points.length === 0) return undefined
    const plot = new uPlot(optionsOf(chart, target), dataOf(chart, points), target)
    const observer = new ResizeObserver(() => plot.setSize(sizeOf(target)))
    observer.observe(target)
    // Colours of a canvas do not follow the colour scheme by themselves.
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    const redraw = () => plot.redraw()
    scheme.addEventListener('change', redraw)
    return () => {
      scheme.removeEventListener('change', redraw)
      observer.disconnect()
      plot.destroy()
    }
  }, [chart, points])
  return html`<div class="plot" ref=${element} aria-hidden="true"></div>`
}

/** @param {HTMLElement} target */
function sizeOf(target) {
  return { width: Math.max(200, target.clientWidth), height: 180 }
}

/** @param {Chart} chart @param {HTMLElement} target @returns {uPlot.Options} */
function optionsOf({ lines, format }, target) {
  const colour = (/** @type {string} */ name) => () =>
    getComputedStyle(document.documentElement).getPropertyValue(name)
  const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 } }
  return {
    ...sizeOf(target),
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_plot, _min, max) => [0, Math.max(max ?? 0, 1) * 1.1] } },
    axes: [
      { ...axis, ticks: { show: false }, values: '{HH}:{mm}' },
      {
        ...axis,
        ticks: { show: false },
        size: 64,
        values: (_plot, values) => values.map((value) => (value === 0 ? '0' : format(value))),
      },
    ],
    series: [
      {},
      ...lines.map(({ label, colour: name }) => ({
        label,
        stroke: colour(name),
        width: 2,
        spanGaps: false,
        points: { size: 4 },
      })),
    ],
  }
}

/** @param {Chart} chart @param {readonly Row[]} points @returns {uPlot.AlignedData} */
function dataOf({ lines }, points) {
  const times = points.map(({ at }) => at / 1000)
  return /** @type {uPlot.AlignedData} */ ([
    times,
    ...lines.map(({ value }) => points.map((point) => value(point))),
  ])
}
