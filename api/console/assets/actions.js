import { useEffect, useId, useRef, useState } from 'preact/hooks'

import { html, send } from './ui.js'

// Everything that changes something is a button, a dialog that asks, and one request.

/**
 * @typedef {import('./ui.js').Row} Row
 * @typedef {{ name: string, label: string, step?: string, kind?: 'text' | 'email' | 'number' | 'select' |
 * 'checks',
 *   options?: readonly string[], hint?: string, isOptional?: boolean,
 *   value?: (row: Row) => string }} Field
 * @typedef {{ label: string, role: string, question: string, method: string,
 *   path: (row: Row) => string, isDangerous?: boolean, isOffered?: (row: Row) => boolean,
 *   fields?: readonly Field[], body?: (values: Row, row: Row) => object,
 *   done: string }} Action
 */

/**
 * @param {{ action: Action, row?: Row, rowName?: string, onDone: (done: Row) => void }} props
 */
export function ActionButton({ action, row = {}, rowName = '', onDone }) {
  // Openings are numbered: the event of a closing may arrive after the next opening.
  const openings = useRef(0)
  const [opening, setOpening] = useState(0)
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const open = () => setOpening(++openings.current)
  const close = () => {
    setOpening((current) => (current === opening ? 0 : current))
    button.current?.focus()
  }
  const name = rowName === '' ? action.label : `${action.label} ${rowName}`
  return html`<button ref=${button} type="button" class="compact" aria-label=${name} aria-haspopup="dialog" onClick=${open}>${action.label}</button>
    ${opening > 0 && html`<${ActionDialog} key=${opening} ...${{ action, row, rowName, onDone }} onClose=${close} />`}`
}

/**
 * @param {{ action: Action, row: Row, rowName: string, onDone: (done: Row) => void,
 *   onClose: () => void }} props
 */
function ActionDialog({ action, row, rowName, onDone, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  const id = useId()
  const [problem, setProblem] = useState('')
  const [isBusy, setBusy] = useState(false)
  useEffect(() => dialog.current?.showModal(), [])
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault()
    setBusy(true)
    const values = valuesOf(
      /** @type {HTMLFormElement} */ (event.currentTarget),
      action.fields ?? [],
    )
    try {
      const answer = await send(action.method, action.path(row), action.body?.(values, row))
      dialog.current?.close()
      onDone({ text: action.done, secret: answer.secret })
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
      setBusy(false)
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby=${id} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <h2 id=${id}>${action.label} ${rowName}</h2>
      <p>${action.question}</p>
      ${(action.fields ?? []).map((field) => html`<${FieldInput} key=${field.name} field=${field} row=${row} />`)}
      ${problem && html`<p class="notice bad" role="alert">${problem}</p>`}
      <div class="row">
        <button class=${action.isDangerous ? 'danger' : 'primary'} disabled=${isBusy}>${action.label}</button>
        <button type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
      </div>
    </form>
  </dialog>`
}

/** @param {{ field: Field, row: Row }} props */
function FieldInput({ field, row }) {
  const { name, label, kind = 'text', step, options = [], hint, isOptional, value } = field
  const hinted = hint && html`<small class="muted">${hint}</small>`
  if (kind === 'checks') {
    return html`<fieldset class="checks"><legend>${label}</legend>
      ${options.map((option) => html`<label class="check" key=${option}><input type="checkbox" name=${name} value=${option} /> ${option}</label>`)}
      ${hinted}
    </fieldset>`
  }
  const start = value?.(row) ?? ''
  const input =
    kind === 'select'
      ? html`<select name=${name}>${options.map((option) => html`<option key=${option} value=${option} selected=${option === start}>${option}</option>`)}</select>`
      : html`<input type=${kind} name=${name} maxlength="320" min=${kind === 'number' ? 0 : undefined} step=${step} required=${!isOptional} defaultValue=${start} />`
  return html`<label class="field"><span>${label}</span>${input}${hinted}</label>`
}

/** @param {HTMLFormElement} form @param {readonly Field[]} fields @returns {Row} */
function valuesOf(form, fields) {
  const entered = new FormData(form)
  return Object.fromEntries(
    fields.map(({ name, kind }) => {
      const text = String(entered.get(name) ?? '').trim()
      if (kind === 'checks') return [name, entered.getAll(name).map(String)]
      if (kind === 'number') return [name, text === '' ? undefined : Number(text)]
      return [name, text]
    }),
  )
}

/**
 * The result of an action. A secret is shown only until the notice is closed.
 * @param {{ result: Row | undefined, onClose: () => void }} props
 */
export function Result({ result, onClose }) {
  const notice = useRef(/** @type {HTMLElement | null} */ (null))
  // The button that was pressed may be gone, and with it the place of the keyboard.
  useEffect(() => notice.current?.focus(), [result])
  if (result === undefined) return undefined
  const copy = () => navigator.clipboard.writeText(String(result.secret))
  return html`<div class="notice stack" role="status" tabindex="-1" ref=${notice}>
    <p>${result.text}</p>
    ${
      result.secret &&
      html`<p>Copy the secret now: it is not shown again.</p>
      <p class="row"><code class="secret">${result.secret}</code><button type="button" class="compact" onClick=${copy}>Copy</button></p>`
    }
    <p><button type="button" class="compact" onClick=${onClose}>Close</button></p>
  </div>`
}
