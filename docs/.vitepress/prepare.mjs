// Collects the pages of the site in .vitepress/source: the Markdown of the repository, the settings from
// .env.example, and the operations from the API description at OPENAPI_URL, which a running
// installation serves.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')
const SOURCE = join(import.meta.dirname, 'source')
const OPENAPI_URL = process.env.OPENAPI_URL ?? 'http://localhost:8081/openapi.json'
/** Files that pages link and that are not pages. */
const FILES = ['.env.example', 'LICENSE', 'deploy/helm/values.yaml']
/** Pages for readers of the repository alone. */
const LEFT_OUT = /^(\.github|models\/training|test\/fixtures)\//

rmSync(SOURCE, { recursive: true, force: true })
const pages = execFileSync('git', ['ls-files', '-z', '*.md'], { cwd: ROOT, encoding: 'utf8' })
for (const page of pages.split('\0').filter((path) => path !== '' && !LEFT_OUT.test(path))) {
  // The page of a folder is its index on the site.
  const text = readFileSync(join(ROOT, page), 'utf8').replaceAll(
    /(?<=\]\([^()\s]*)README\.md/g,
    'index.md',
  )
  const target = join(SOURCE, page.replace(/README\.md$/, 'index.md'))
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, text)
}
for (const file of FILES) cpSync(join(ROOT, file), join(SOURCE, 'public', file))
const reference = join(SOURCE, 'docs/reference')
mkdirSync(reference, { recursive: true })
const settings = readFileSync(join(ROOT, '.env.example'), 'utf8')
writeFileSync(join(reference, 'configuration.md'), configurationPage(settings))
const answer = await fetch(OPENAPI_URL).catch((error) => {
  const message = `${OPENAPI_URL} does not answer; run npm start or set OPENAPI_URL`
  throw new Error(message, { cause: error })
})
writeFileSync(join(reference, 'api.md'), apiPage(await answer.json()))

function configurationPage(text) {
  const lines = ['# Configuration', '']
  let about = []
  for (const line of text.split('\n').slice(1)) {
    const [, name, value] = /^# ([A-Z][A-Z0-9_]+)=(.*)$/.exec(line) ?? []
    if (line.startsWith('## ')) lines.push('', line, '', '| setting | default | |', '|---|---|---|')
    else if (name !== undefined) {
      lines.push(`| \`${name}\` | ${value === '' ? '' : code(value)} | ${cell(about.join(' '))} |`)
      about = []
    } else if (line.startsWith('# ')) about.push(line.slice(2))
  }
  return `${lines.join('\n')}\n`
}

function apiPage({ paths, components }) {
  const byTag = new Map()
  for (const [path, item] of Object.entries(paths))
    for (const [method, operation] of Object.entries(item)) {
      if (operation.responses === undefined) continue
      const tag = operation.tags?.[0] ?? 'Other'
      if (!byTag.has(tag)) byTag.set(tag, [])
      byTag.get(tag).push(operationPart({ path, method, operation, components }))
    }
  const parts = [...byTag].map(([tag, operations]) => `## ${tag}\n\n${operations.join('\n')}`)
  return `# API\n\nEvery operation that a server serves; \`/docs\` of a running one lets you try them.\n\n${parts.join('\n')}`
}

function operationPart({ path, method, operation, components }) {
  const lines = [`### ${method.toUpperCase()} ${code(path)}`, '']
  if (operation.summary) lines.push(cell(operation.summary), '')
  if (operation.description) lines.push(cell(operation.description), '')
  const content = operation.requestBody?.content ?? {}
  const fields = [
    ...(operation.parameters ?? []).map((field) => ({ ...field, place: field.in })),
    ...Object.values(content)
      .slice(0, 1)
      .flatMap(({ schema }) => bodyFields(schema, components)),
  ]
  if (fields.length > 0) {
    lines.push('| field | in | type | |', '|---|---|---|---|')
    for (const { name, place, required, schema = {}, description } of fields)
      lines.push(
        `| \`${name}\`${required ? ' *' : ''} | ${place} | ${typeOf(schema)} | ${cell(description ?? schema.description ?? '')} |`,
      )
    lines.push('')
  }
  lines.push(`Answers: ${Object.keys(operation.responses).join(', ')}.`, '')
  return lines.join('\n')
}

function bodyFields(schema, components) {
  const name = /^#\/components\/schemas\/(.+)$/.exec(schema?.$ref ?? '')?.[1]
  const body = (name === undefined ? schema : components?.schemas?.[name]) ?? {}
  const required = new Set(body.required)
  return Object.entries(body.properties ?? {}).map(([field, own]) => {
    return { name: field, place: 'body', required: required.has(field), schema: own }
  })
}

function typeOf({ type, $ref, anyOf, oneOf }) {
  if (type !== undefined) return [type].flat().join(' or ')
  if ($ref !== undefined) return $ref.split('/').at(-1)
  return (anyOf ?? oneOf) === undefined ? 'any' : 'one of several'
}

/** Text of a table's cell; braces of templates are code, because the site would evaluate them. */
function cell(text) {
  return text
    .replaceAll('|', '\\|')
    .replaceAll('\n', ' ')
    .replaceAll(/(?<!`)\{\{[^}]*\}\}(?!`)/g, '`$&`')
}

function code(text) {
  return `\`${text.replaceAll('|', '\\|')}\``
}
