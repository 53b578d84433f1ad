import type { AssetFiles } from '#api/pages/asset-files.ts'
import { type Html, html } from '#api/pages/html.ts'

import { NOTHING } from './assets/admin-figures.js'
import type { Cell, Table, View } from './assets/admin-view.js'
import { adminDocument } from './document.ts'

/** The console's overview as the server first renders it; its script then refreshes it. */
export function renderOverview(page: {
  /** The relative path from the page to the root of the service. */
  readonly root: string
  readonly view: View
  readonly assets: AssetFiles
  readonly bar: Html
  readonly navigation: Html
}): string {
  const { root, view, assets, bar, navigation } = page
  const [dependencies, queues, workers, errors, slow, failed] = view.tables.map(renderTable)
  const main = html`
    <div class="stack board">
      <div class="head">
        <h1>Overview</h1>
        <button class="compact" type="button" id="refresh" aria-pressed="false" hidden>Pause</button>
      </div>
      <p class="notice" id="state" role="status" hidden></p>
      <dl class="tiles" id="tiles">${view.tiles.map(renderTile)}</dl>
      ${dependencies}
      ${queues}
      ${workers}
      ${slow}
      <div class="pair">
        ${errors}
        ${failed}
      </div>
    </div>`
  return adminDocument({
    title: 'Administration',
    root,
    assets,
    main,
    bar,
    navigation,
    script: 'admin.js',
  })
}

function renderTile({ label, value, note, tone }: View['tiles'][number]): Html {
  return html`<div class="tile ${tone}"><dt>${label}</dt><dd><b>${value}</b><small>${note}</small></dd></div>`
}

// Explicit ARIA roles, because the style sheet for phones changes the table layout and browsers
// then drop the table semantics.
function renderTable({ id, title, about, columns, rows, empty }: Table): Html {
  const head = columns.map(
    ({ label, isNumber }) =>
      html`<th scope="col" role="columnheader" class="${isNumber ? 'number' : ''}">${label}</th>`,
  )
  const body = rows.map(
    (cells) =>
      html`<tr role="row">${cells.map((cell, index) => renderCell(cell, columns[index]))}</tr>`,
  )
  const none = html`<tr role="row"><td role="cell" class="empty" colspan="${columns.length}">${empty}</td></tr>`
  return html`<section class="card" id="${id}" aria-labelledby="${id}-title">
        <h2 id="${id}-title">${title}</h2>
        <p class="muted small">${about}</p>
        <table role="table" aria-labelledby="${id}-title">
          <thead role="rowgroup"><tr role="row">${head}</tr></thead>
          <tbody role="rowgroup">${rows.length === 0 ? none : body}</tbody>
        </table>
      </section>`
}

function renderCell(cell: Cell, column: Table['columns'][number] | undefined): Html {
  const { text, note, share, tone } = cell
  const meter =
    share === undefined
      ? ''
      : html`<meter min="0" max="1" value="${share}" aria-hidden="true"></meter>`
  const small = note === undefined ? '' : html`<small>${note}</small>`
  const classes = [column?.isNumber && 'number', tone, text === NOTHING && 'nothing']
    .filter((name) => typeof name === 'string')
    .join(' ')
  return html`<td role="cell" data-label="${column?.label}" class="${classes}"><span>${text}</span>${meter}${small}</td>`
}
