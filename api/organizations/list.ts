/** A list that is given whole, in the wrapper of every list. */
export function listOf<T extends { readonly id: string }>(data: T[]) {
  return {
    object: 'list' as const,
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: false,
  }
}
