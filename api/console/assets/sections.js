import { useEffect, useId, useState } from 'preact/hooks'

import { ActionButton, Result } from './actions.js'
import { html, may, read } from './ui.js'

// A list with filters, pages, actions on its rows and actions of its own.

/**
 * @typedef {import('./ui.js').Row} Row
 * @typedef {string | { text: string, note?: string, href?: string, tone?: string }} Cell
 * @typedef {{ label: string, isNumber?: boolean, show: (row: Row) => Cell }} Column
 * @typedef {{ name: string, label: string, options?: readonly string[], value?: string }} Filter
 * @typedef {import('./actions.js').Action} Action
 * @typedef {{ title: string, about?: string, path: string, filters?: readonly Filter[],
 *   columns: readonly Column[], rowName: (row: Row) => string, actions?: readonly Action[],
 *   rowActions?: readonly Action[], empty: string, isRefreshed?: boolean,
 *   aside?: (answer: Row) => unknown }} SectionOptions
 */

const REFRESH_MS = 5000

/** A section of a page. @param {SectionOptions} options */
export function Section(options) {
  const { title, about, filters = [], columns, empty } = options
  const id = useId()
  const [wanted, setWanted] = useState(/** @type {Row} */ (startOf(filters)))
  const [version, setVersion] = useState(0)
  const [result, setResult] = useState(/** @type {Row | undefined} */ (undefined))
  const { answer, problem } = useAnswer(options, wanted, version)
  const reload = (/** @type {Row} */ done) => {
    setResult(done)
    setVersion((before) => before + 1)
  }
  const actions = (options.actions ?? []).filter(({ role }) => may(role))
  const rowActions = (options.rowActions ?? []).filter(({ role }) => may(role))
  const rows = /** @type {Row[]} */ (answer?.rows ?? [])
  return html`<section class="card stack" aria-labelledby=${id}>
    <div class="head">
      <h2 id=${id}>${title}</h2>
      <div class="row">
        ${actions.map((action) => html`<${ActionButton} key=${action.label} action=${action} onDone=${reload} />`)}
      </div>
    </div>
    ${about && html`<p class="muted small">${about}</p>`}
    ${answer && options.aside?.(answer)}
    <${Filters} filters=${filters} onChange=${setWanted} />
    <${Result} result=${result} onClose=${() => setResult(undefined)} />
    ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
    ${answer === undefined && !problem && html`<p class="muted" role="status">Loading …</p>`}
    ${
      answer &&
      html`<table role="table" aria-labelledby=${id}>
      <thead role="rowgroup"><tr role="row">
        ${columns.map(({ label, isNumber }) => html`<th key=${label} scope="col" role="columnheader" class=${isNumber ? 'number' : ''}>${label}</th>`)}
        ${rowActions.length > 0 && html`<th scope="col" role="columnheader"><span class="spoken-only">Actions</span></th>`}
      </tr></thead>
      <tbody role="rowgroup">
        ${rows.map((row, index) => showRow(row, { options, rowActions, reload, index }))}
        ${rows.length === 0 && html`<tr role="row"><td role="cell" class="empty" colspan=${columns.length + 1}>${empty}</td></tr>`}
      </tbody>
    </table>`
    }
    <${Pages} answer=${answer} onTurn=${(/** @type {number} */ page) => setWanted({ ...wanted, page })} />
  </section>`
}

/** @param {readonly Filter[]} filters */
function startOf(filters) {
  return Object.fromEntries(filters.map(({ name, value }) => [name, value ?? '']))
}

/**
 * The answer for what is wanted; the former one stays while the next is loaded.
 * @param {SectionOptions} options @param {Row} wanted @param {number} version
 * @returns {{ answer: Row | undefined, problem: string }}
 */
function useAnswer({ path, isRefreshed }, wanted, version) {
  const [answer, setAnswer] = useState(/** @type {Row | undefined} */ (undefined))
  const [problem, setProblem] = useState('')
  const query = String(new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)))
  useEffect(() => {
    let isWanted = true
    const load = () =>
      read(query === '' ? path : `${path}?${query}`).then(
        (read) => {
          if (!isWanted) return
          setAnswer(read)
          setProblem('')
        },
        (/** @type {Error} */ error) => isWanted && setProblem(error.message),
      )
    void load()
    const timer = isRefreshed && setInterval(() => !document.hidden && load(), REFRESH_MS)
    return () => {
      isWanted = false
      if (timer) clearInterval(timer)
    }
  }, [path, query, version])
  return { answer, problem }
}

/**
 * @param {Row} row
 * @param {{ options: SectionOptions, rowActions: readonly Action[], reload: (done: Row) => void,
 *   index: number }} list
 */
function showRow(row, { options, rowActions, reload, index }) {
  const shown = rowActions.filter((action) => action.isOffered?.(row) ?? true)
  return html`<tr role="row" key=${row.id ?? index}>
    ${options.columns.map((column) => showCell(column, row))}
    ${
      rowActions.length > 0 &&
      html`<td role="cell" class="actions"><div class="row">
      ${shown.map((action) => html`<${ActionButton} key=${action.label} action=${action} row=${row} rowName=${options.rowName(row)} onDone=${reload} />`)}
    </div></td>`
    }
  </tr>`
}

/** @param {Column} column @param {Row} row */
function showCell({ label, isNumber, show }, row) {
  const value = show(row)
  /** @type {Exclude<Cell, string>} */
  const cell = typeof value === 'string' ? { text: value } : value
  const { text, note, href, tone = '' } = cell
  const classes = [isNumber ? 'number' : '', tone, text === '' && !note ? 'nothing' : ''].join(' ')
  return html`<td role="cell" key=${label} data-label=${label} class=${classes.trim()}>
    ${href === undefined ? html`<span>${text || '–'}</span>` : html`<a href=${href}>${text}</a>`}
    ${note && html`<small>${note}</small>`}
  </td>`
}

/** @param {{ filters: readonly Filter[], onChange: (wanted: Row) => void }} props */
function Filters({ filters, onChange }) {
  if (filters.length === 0) return undefined
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault()
    const form = /** @type {HTMLFormElement} */ (event.currentTarget)
    onChange(Object.fromEntries(new FormData(form)))
  }
  return html`<form class="filters" onSubmit=${submit}>
    ${filters.map(
      ({ name, label, options, value = '' }) => html`<label class="field" key=${name}>
        <span>${label}</span>
        ${
          options === undefined
            ? html`<input type="text" name=${name} maxlength="200" defaultValue=${value} />`
            : html`<select name=${name}>
              <option value="">any</option>
              ${options.map((option) => html`<option key=${option} value=${option} selected=${option === value}>${option}</option>`)}
            </select>`
        }
      </label>`,
    )}
    <button>Show</button>
  </form>`
}

/** @param {{ answer: Row | undefined, onTurn: (page: number) => void }} props */
function Pages({ answer, onTurn }) {
  const { page = 1, hasMore = false } = answer ?? {}
  if (page === 1 && !hasMore) return undefined
  return html`<nav class="row" aria-label="Pages of the list">
    <button class="compact" disabled=${page === 1} onClick=${() => onTurn(page - 1)}>Newer</button>
    <span class="muted small">Page ${page}</span>
    <button class="compact" disabled=${!hasMore} onClick=${() => onTurn(page + 1)}>Older</button>
  </nav>`
}
