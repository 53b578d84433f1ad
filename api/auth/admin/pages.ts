import { invalid } from '#api/auth/errors.ts'

/** A page of a list. */
export interface Page {
  readonly number: number
  readonly size: number
  readonly offset: number
}

const SIZE_DEFAULT = 50
const SIZE_MAX = 1000
const NUMBER_MAX = 1_000_000

/** The page that a query asks for; empty values mean the defaults. */
export function parsePage(query: {
  readonly page?: string | undefined
  readonly per_page?: string | undefined
}): Page {
  const number = parseCount(query.page, { name: 'page', fallback: 1, max: NUMBER_MAX })
  const size = parseCount(query.per_page, {
    name: 'per_page',
    fallback: SIZE_DEFAULT,
    max: SIZE_MAX,
  })
  return { number, size, offset: (number - 1) * size }
}

/** Headers with the total count and the link to the next page. */
export function pageHeaders(
  path: string,
  query: Readonly<Record<string, string | undefined>>,
  { page, total }: { readonly page: Page; readonly total: number },
): Record<string, string> {
  const { page: _number, per_page: _size, ...others } = query
  const kept = Object.entries(others).filter((entry): entry is [string, string] => !!entry[1])
  const more = kept.length === 0 ? '' : `&${new URLSearchParams(kept)}`
  const last = Math.max(1, Math.ceil(total / page.size))
  // Clients expect `page` as the first parameter.
  const link = (number: number, rel: string): string =>
    `<${path}?page=${number}&per_page=${page.size}${more}>; rel="${rel}"`
  const links = [...(page.number < last ? [link(page.number + 1, 'next')] : []), link(last, 'last')]
  return { 'x-total-count': String(total), link: links.join(', ') }
}

function parseCount(
  text: string | undefined,
  {
    name,
    fallback,
    max,
  }: { readonly name: string; readonly fallback: number; readonly max: number },
): number {
  if (text === undefined || text === '') return fallback
  const count = Number(text)
  if (!/^\d+$/.test(text) || count > max) {
    throw invalid(
      `Bad Pagination Parameters: ${name} must be a whole number up to ${max}, not "${text.slice(0, 32)}"`,
      name,
    )
  }
  // Some clients send zero for the first page.
  return Math.max(1, count)
}
