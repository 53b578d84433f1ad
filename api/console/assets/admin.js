import { NOTHING } from './admin-figures.js'
import { viewOf } from './admin-view.js'

// Refreshes the page from /admin/overview.json every two seconds.

/** @typedef {import('./admin-view.js').View} View */

const OVERVIEW = new URL('../../overview.json', import.meta.url)
const INTERVAL_MS = 2000
const TIMEOUT_MS = 8000
const SIGNED_OUT = 'You have been signed out. Reload the page to sign in again.'
const UNREACHABLE = 'The server cannot be reached. What you see is from before.'

const refresh = /** @type {HTMLButtonElement} */ (document.getElementById('refresh'))
const state = /** @type {HTMLElement} */ (document.getElementById('state'))
let isRunning = true
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer

refresh.hidden = false
refresh.addEventListener('click', () => {
  isRunning = !isRunning
  refresh.setAttribute('aria-pressed', String(!isRunning))
  refresh.textContent = isRunning ? 'Pause' : 'Go on'
  say(isRunning ? '' : 'Paused.')
  if (isRunning) void update()
})
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') void update()
})
timer = setTimeout(update, INTERVAL_MS)

async function update() {
  clearTimeout(timer)
  if (!isRunning || document.visibilityState !== 'visible') return
  const problem = await load()
  // The page may have been paused meanwhile.
  if (!isRunning) return
  say(problem)
  if (problem !== SIGNED_OUT) timer = setTimeout(update, INTERVAL_MS)
}

/** Resolves with an error message, or undefined. */
async function load() {
  try {
    const answer = await fetch(OVERVIEW, {
      headers: { accept: 'application/json' },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    })
    if (answer.status === 401 || answer.status === 403) return SIGNED_OUT
    if (!answer.ok) return UNREACHABLE
    const overview = await answer.json()
    // The page may have been paused meanwhile.
    if (isRunning) show(viewOf(overview))
    return ''
  } catch {
    return UNREACHABLE
  }
}

/**
 * Updates the status only when it changes, so that screen readers announce it once. @param {string}
 * text
 */
function say(text) {
  if (state.textContent !== text) state.textContent = text
  state.hidden = text === ''
}

/** @param {View} view */
function show({ tiles, tables }) {
  const grid = /** @type {HTMLElement} */ (document.getElementById('tiles'))
  grid.replaceChildren(
    ...tiles.map(({ label, value, note, tone }) =>
      element('div', { class: classesOf(['tile', tone]) }, [
        element('dt', {}, [label]),
        element('dd', {}, [element('b', {}, [value]), element('small', {}, [note])]),
      ]),
    ),
  )
  for (const table of tables) showRows(table)
}

/** @param {View['tables'][number]} table */
function showRows({ id, columns, rows, empty }) {
  const body = /** @type {HTMLElement} */ (document.querySelector(`#${id} tbody`))
  if (rows.length === 0) {
    const cell = element('td', { role: 'cell', class: 'empty', colspan: `${columns.length}` }, [
      empty,
    ])
    body.replaceChildren(element('tr', { role: 'row' }, [cell]))
    return
  }
  body.replaceChildren(
    ...rows.map((cells) =>
      element(
        'tr',
        { role: 'row' },
        cells.map((cell, index) => showCell(cell, columns[index] ?? { label: '' })),
      ),
    ),
  )
}

/**
 * @param {View['tables'][number]['rows'][number][number]} cell @param
 * {View['tables'][number]['columns'][number]} column
 */
function showCell({ text, note, share, tone }, { label, isNumber }) {
  const content = [element('span', {}, [text])]
  if (share !== undefined) {
    content.push(
      element('meter', { min: '0', max: '1', value: `${share}`, 'aria-hidden': 'true' }, []),
    )
  }
  if (note !== undefined) content.push(element('small', {}, [note]))
  const classes = classesOf([isNumber && 'number', tone, text === NOTHING && 'nothing'])
  return element('td', { role: 'cell', 'data-label': label, class: classes }, content)
}

/** @param {(string | false | undefined)[]} names */
function classesOf(names) {
  return names.filter((name) => typeof name === 'string').join(' ')
}

/**
 * Creates an element; strings become text nodes.
 * @param {string} tag @param {Record<string, string>} attributes @param {(string | HTMLElement)[]}
 * content
 */
function element(tag, attributes, content) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== '') made.setAttribute(name, value)
  }
  made.append(...content)
  return made
}
