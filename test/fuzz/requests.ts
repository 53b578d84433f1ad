import fc, { type Arbitrary } from 'fast-check'

import { contentOf } from './bodies.ts'
import type { Operation, Parameter } from './document.ts'
import type { FormFiles } from './forms.ts'
import { ODD_HEADERS } from './headers.ts'
import { asText, encode, type Hints, hostileText, hostileValue, valid } from './values.ts'

/** The user whose rights a request claims. */
export type Claim = 'own' | 'key' | 'user' | 'service' | 'none' | 'broken'

/** A request as it goes over the wire. */
export interface FuzzRequest {
  readonly claim: Claim
  readonly method: string
  readonly target: string
  readonly headers: readonly (readonly [name: string, value: string])[]
  /** Bytes, a character each. */
  readonly body: string | undefined
}

/** Known values of the installation: existing ids, meaningful words. */
export interface Known {
  readonly hints: Hints
  /** Values of path parameters by name. */
  readonly ids: Readonly<Record<string, readonly string[]>>
  readonly files: FormFiles
}

/** Requests to one operation, from well meant to hostile. */
export function requestsTo(operation: Operation, known: Known): Arbitrary<FuzzRequest> {
  return fc
    .record({
      claim: CLAIMS,
      method: methodOf(operation),
      path: pathOf(operation, known),
      query: queryOf(operation.parameters, known),
      headers: fc.oneof(
        { weight: 3, arbitrary: fc.constant([]) },
        { weight: 2, arbitrary: fc.array(ODD_HEADERS, { maxLength: 3 }) },
      ),
      content: contentOf(operation, known),
    })
    .map(({ claim, method, path, query, headers, content }) => ({
      claim,
      method,
      target: path + query,
      body: content?.body,
      headers: [
        ...(content?.type === undefined ? [] : [['content-type', content.type]]),
        ...headers,
      ],
    })) as Arbitrary<FuzzRequest>
}

const CLAIMS: Arbitrary<Claim> = fc.oneof(
  { weight: 16, arbitrary: fc.constant('own' as const) },
  { weight: 1, arbitrary: fc.constantFrom('key', 'user', 'service', 'none', 'broken') },
)

const methodOf = ({ method }: Operation): Arbitrary<string> =>
  fc.oneof(
    { weight: 24, arbitrary: fc.constant(method) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        'GET',
        'HEAD',
        'POST',
        'PUT',
        'PATCH',
        'DELETE',
        'OPTIONS',
        'TRACE',
        'QUERY',
        'PROPFIND',
      ),
    },
  )

const ODD_SEGMENTS = [
  '%',
  '%zz',
  '%00',
  '%ff',
  '%2e%2e',
  '..',
  '.',
  '..%2f..%2fetc',
  '%5c',
  '%ED%A0%80',
  '%F0%9F',
  'a'.repeat(600),
  '%F0%9F%92%A5',
  ';a=b',
  '*',
  "'",
  '%0d%0ax-injected:%201',
  '%u0041',
  '-',
  '~',
  '%2f',
  '%25',
  'null',
  '00000000-0000-0000-0000-000000000000',
  '\u00ff',
  '{id}',
  '0',
  '%20',
]

/** The path with a value for each of its parameters. */
function pathOf({ path, parameters }: Operation, known: Known): Arbitrary<string> {
  const names = parameters.filter((parameter) => parameter.in === 'path').map(({ name }) => name)
  const segment = (name: string): Arbitrary<string> => {
    const ids = known.ids[`${path} ${name}`] ?? known.ids[name] ?? []
    const odd = fc.oneof(
      fc.constantFrom(...ODD_SEGMENTS),
      hostileText.map((text) => encodeURIComponent(text.toWellFormed())),
    )
    if (ids.length === 0) return odd
    return fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...ids.map(encodeURIComponent)) },
      { weight: 2, arbitrary: odd },
    )
  }
  const filled = fc
    .tuple(...names.map(segment))
    .map((values) => path.replace(/\{[^}]+\}/g, () => values.shift() ?? 'x'))
  const bent = fc.tuple(filled, fc.constantFrom(...PATH_BENDS)).map(([plain, bend]) => bend(plain))
  return fc.oneof({ weight: 30, arbitrary: filled }, { weight: 1, arbitrary: bent })
}

const PATH_BENDS: readonly ((path: string) => string)[] = [
  (path) => `${path}/`,
  (path) => `/${path}`,
  (path) => `${path}%00`,
  (path) => path.toUpperCase(),
  (path) => path.replace('/', '/./'),
  (path) => `/x/..${path}`,
  (path) => `${path};a=b`,
  (path) => `${path}#part`,
  (path) => `http://evil.example${path}`,
  (path) => path.replaceAll('/', '\\'),
  (path) => path.replace(/[a-z]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
]

/** A query of parameters that are known, odd, repeated or unknown. */
function queryOf(parameters: readonly Parameter[], known: Known): Arbitrary<string> {
  const described = parameters.filter((parameter) => parameter.in === 'query')
  const pairs = described.map(({ name, schema }) => {
    const plain = valid(schema, known.hints, name).map(
      (value) => `${name}=${encode(asText(value))}`,
    )
    const odd = fc
      .tuple(fc.constantFrom(name, `${name}[]`, `${name}[a]`), fc.oneof(hostileText, hostileValue))
      .map(([key, value]) => `${key}=${encode(asText(value).slice(0, 6000))}`)
    return fc.oneof(
      { weight: 5, arbitrary: fc.constant<string[]>([]) },
      { weight: 5, arbitrary: plain.map((text) => [text]) },
      { weight: 2, arbitrary: odd.map((text) => [text]) },
      { weight: 1, arbitrary: fc.tuple(plain, odd).map((both) => both) },
    )
  })
  const strange = fc.oneof(
    { weight: 9, arbitrary: fc.constant<string[]>([]) },
    { weight: 1, arbitrary: fc.constantFrom(...ODD_QUERIES).map((text) => [text]) },
  )
  return fc.tuple(strange, ...pairs).map((lists) => {
    const all = lists.flat()
    return all.length === 0 ? '' : `?${all.join('&')}`
  })
}

const ODD_QUERIES = [
  '',
  '&&&',
  '=',
  '%',
  '%zz=1',
  'a=%ff',
  'a=%00',
  '__proto__[a]=1',
  'constructor=1',
  '?',
  'a=b=c',
  'limit=1&limit=2',
  'a[]=1&a[]=2',
  `${'a=1&'.repeat(2000)}`,
  'a='.padEnd(9000, 'x'),
  '\u00e9=\u00ff',
]
