/** A format of answers in which free text and parts between tags alternate, as in xgrammar. */
export type TagFormat =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'json'; readonly schema: object; readonly path: string }
  | { readonly kind: 'regex'; readonly pattern: string; readonly path: string }
  | { readonly kind: 'grammar'; readonly grammar: string; readonly path: string }
  | { readonly kind: 'anyText'; readonly excludes: readonly string[] }
  | { readonly kind: 'sequence' | 'choice'; readonly parts: readonly TagFormat[] }
  /** Any number of times if `max` is absent. */
  | {
      readonly kind: 'repeat'
      readonly body: TagFormat
      readonly min: number
      readonly max?: number
    }
  | Tag
  /** Free text in which every trigger begins one of the tags. */
  | (Tags & {
      readonly kind: 'triggered'
      readonly triggers: readonly string[]
      readonly excludes: readonly string[]
    })
  | (Tags & { readonly kind: 'separated'; readonly separator: string })

/**
 * A part of an answer between two texts. The closing text is one of `ends`; an empty list means
 * none.
 */
export interface Tag {
  readonly kind: 'tag'
  readonly begin: string
  readonly content: TagFormat
  readonly ends: readonly string[]
}

interface Tags {
  readonly tags: readonly Tag[]
  readonly atLeastOne: boolean
  readonly stopAfterFirst: boolean
}

/** A copy of the format with the given schemas in place of its own. */
export function mapSchemas(format: TagFormat, map: (schema: object) => object): TagFormat {
  switch (format.kind) {
    case 'json':
      return { ...format, schema: map(format.schema) }
    case 'sequence':
    case 'choice':
      return { ...format, parts: format.parts.map((part) => mapSchemas(part, map)) }
    case 'repeat':
      return { ...format, body: mapSchemas(format.body, map) }
    case 'tag':
      return mapTag(format, map)
    case 'triggered':
    case 'separated':
      return { ...format, tags: format.tags.map((tag) => mapTag(tag, map)) }
    case 'text':
    case 'regex':
    case 'grammar':
    case 'anyText':
      return format
  }
}

function mapTag(tag: Tag, map: (schema: object) => object): Tag {
  return { ...tag, content: mapSchemas(tag.content, map) }
}
