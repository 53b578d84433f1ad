import { Section } from './sections.js'
import { bytes, html, number, part, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

/** The models of the catalogue. */
export function sections() {
  return html`<${Section} ...${MODELS} />`
}

const operator = 'operator'
const administrator = 'administrator'
const CAPABILITIES = {
  completion: ['chat', 'completion', 'edit', 'search', 'vision', 'fine-tune'],
  embedding: ['embedding', 'rerank', 'classify', 'sparse', 'multi-vector'],
  image: ['generate', 'edit', 'variation'],
  audio: ['transcribe', 'translate'],
}

/** @type {import('./sections.js').SectionOptions} */
const MODELS = {
  title: 'All models',
  path: 'models',
  empty: 'models.json lists none.',
  isRefreshed: true,
  rowName: (row) => row.id,
  columns: [
    {
      label: 'Model',
      show: ({ id, kind, capabilities }) => ({
        text: id,
        note: [kind, ...capabilities].join(', '),
      }),
    },
    { label: 'State', show: stateOf },
    {
      label: 'Workers',
      show: ({ places }) => ({
        text: `${places.filter(isReady).length} of ${places.length} ready`,
        note: places.map((/** @type {Row} */ each) => `${each.host} (${each.pid})`).join(', '),
      }),
    },
    {
      label: 'Slots',
      isNumber: true,
      show: ({ places }) => number(total(places.filter(isReady), 'slots')),
    },
    { label: 'Memory', isNumber: true, show: ({ places }) => bytes(total(places, 'bytes')) },
    {
      label: 'Context',
      isNumber: true,
      show: ({ places }) => number(places.find(isReady)?.context_length),
    },
    {
      label: 'Files',
      show: ({ source, added }) => ({
        text: source,
        note: added ? `added by ${added.by}, ${when(added.at)}` : '',
      }),
    },
  ],
  actions: [
    {
      label: 'Add a model',
      role: administrator,
      method: 'POST',
      path: () => 'models',
      question: 'Every worker that serves models of this kind fetches its files and serves it.',
      fields: [
        {
          name: 'source',
          label: 'Files',
          hint: 'hub:owner/name, hub:owner/name@revision or s3:prefix',
        },
        { name: 'id', label: 'Model id', hint: 'The name that requests use.' },
        { name: 'kind', label: 'Kind', kind: 'select', options: Object.keys(CAPABILITIES) },
        {
          name: 'capabilities',
          label: 'Capabilities',
          kind: 'checks',
          options: [...new Set(Object.values(CAPABILITIES).flat())],
          hint: Object.entries(CAPABILITIES)
            .map(([kind, names]) => `${kind}: ${names.join(', ')}`)
            .join('; '),
        },
        {
          name: 'onnxFile',
          label: 'ONNX file',
          isOptional: true,
          hint: 'Such as model_quantized; the best one if empty.',
        },
      ],
      body: ({ onnxFile, ...values }) => ({ ...values, ...(onnxFile !== '' && { onnxFile }) }),
      done: 'The model is added. Its download and load are shown below.',
    },
  ],
  rowActions: [
    {
      label: 'Disable',
      role: operator,
      method: 'POST',
      isDangerous: true,
      path: ({ id }) => `models/${part(id)}/disable`,
      isOffered: (row) => row.disabled === null,
      question: 'New requests are refused with 503 `model_disabled`; accepted ones end.',
      fields: [{ name: 'reason', label: 'Reason, for other operators', isOptional: true }],
      body: (values) => values,
      done: 'The model is disabled.',
    },
    {
      label: 'Enable',
      role: operator,
      method: 'POST',
      path: ({ id }) => `models/${part(id)}/enable`,
      isOffered: (row) => row.disabled !== null,
      question: 'The model takes requests again.',
      done: 'The model is enabled.',
    },
    {
      label: 'Remove',
      role: administrator,
      method: 'DELETE',
      isDangerous: true,
      path: ({ id }) => `models/${part(id)}`,
      isOffered: (row) => row.added !== null,
      question: 'Requests for it are refused from now on; its files stay in the caches of workers.',
      done: 'The model is removed.',
    },
  ],
}

/** @param {Row} row @returns {import('./sections.js').Cell} */
function stateOf({ disabled, places }) {
  if (disabled !== null) {
    const note = `${disabled.by}, ${when(disabled.at)}${disabled.reason ? `: ${disabled.reason}` : ''}`
    return { text: 'disabled', note, tone: 'warn' }
  }
  const error = places.find((/** @type {Row} */ each) => each.load_error !== null)
  if (places.some(isReady)) return { text: 'loaded', note: error?.load_error ?? '', tone: 'good' }
  const pull = places.find((/** @type {Row} */ each) => each.pull !== null)?.pull
  if (pull !== undefined) return { text: 'downloading', note: progressOf(pull), tone: 'warn' }
  if (error !== undefined) return { text: 'cannot be loaded', note: error.load_error, tone: 'bad' }
  return places.length > 0
    ? { text: 'loading', tone: 'warn' }
    : { text: 'no worker', note: 'no living worker serves this model', tone: 'bad' }
}

/** @param {Row} pull */
function progressOf({ file, done_bytes: done, total_bytes: total }) {
  return `${bytes(done)} of ${bytes(total)}, now ${file}`
}

/** @param {Row} worker */
function isReady(worker) {
  return worker.is_ready
}

/** @param {readonly Row[]} places @param {string} field */
function total(places, field) {
  return places.reduce((sum, each) => sum + (each[field] ?? 0), 0)
}
